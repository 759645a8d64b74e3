// A chart in the terminal.
#pragma once

#include <string>

#include "io/chart.hpp"

namespace weft::io {

struct TextChartOptions {
  int width = 72, height = 18;  ///< of the whole text, in characters
  bool unicode = true;          ///< Braille dots and box lines; otherwise plain ASCII
};

/// `height` lines of at most `width` columns, each ended by a newline: title and legend, the plot with ticks on both
/// axes, the label of x. With Unicode the first series is a Braille curve (2 x 4 dots a character) and the others are
/// marks o x + where they have points; in ASCII every series is marks, the first * . Control characters in text become
/// '?'. UsageError for widths outside [24, 400] and heights outside [6, 200].
std::string text_chart(const Chart& chart, const TextChartOptions& options = {});

}  // namespace weft::io
