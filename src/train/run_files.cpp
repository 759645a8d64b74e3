#include "train/run_files.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "io/svg_chart.hpp"
#include "train/curve.hpp"

namespace weft::train {

void RunFiles::begin(const RunStart& run) {
  title_ = curve_title(run.config);
  metrics_.emplace(folder_.metrics(), run.steps);
}

void RunFiles::sample(const Sample& sample) {
  LineLog log(folder_.samples());
  log.append(fmt::format("---- step {} ----", sample.step));
  for (std::size_t begin = 0; begin <= sample.text.size();) {
    const std::size_t end = std::min(sample.text.find('\n', begin), sample.text.size());
    log.append(std::string(sample.text.substr(begin, end - begin)));
    begin = end + 1;
  }
}

void RunFiles::profile(const Profile& profile) {
  write_file_atomically(folder_.profile(), to_json(profile));
  write_file_atomically(folder_.trace(), to_trace(profile));
}

void RunFiles::end(const RunEnd& run) { io::write_svg_chart(folder_.curve(), loss_curve(run.metrics, title_)); }

}  // namespace weft::train
