// Scanners for the regular expressions by which the known families of models cut text into words. Each does what its
// expression says, in linear time; a test compares them with PCRE2.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "text/pattern.hpp"

namespace weft::text {

inline constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kO200kExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kDeepSeekNumbersExpression = R"(\p{N}{1,3})";
inline constexpr std::string_view kDeepSeekHanExpression = "[一-龥\u3040-ゟ゠-ヿ]+";
inline constexpr std::string_view kDeepSeekExpression = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                                                        "\r\n"
                                                        R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                                                        "\r\n"
                                                        R"(]*|\s*[)"
                                                        "\r\n"
                                                        R"(]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kDigitExpression = R"(\p{N})";

/// The expressions that have a scanner.
std::span<const std::string_view> scanned_expressions();
/// The scanner of exactly this expression; null if there is none.
std::unique_ptr<Pattern> make_scanner(std::string_view expression);

}  // namespace weft::text
