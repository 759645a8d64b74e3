// Normalizers, pre-tokenizers and decoders of tokenizer.json.
#include <algorithm>

#include "text/character_map.hpp"
#include "text/tokenizer_json.hpp"
#include "text/unicode.hpp"

namespace weft::text {
namespace {

constexpr std::size_t kMaxParts = 64;  // of a sequence

template <class Kind>
struct Named {
  std::string_view name;
  Kind kind;
};

template <class Kind, std::size_t count>
Kind one_of(const JsonNode& node, const Named<Kind> (&names)[count]) {
  const std::string_view name = node.string();
  std::string known;
  for (const auto& [candidate, kind] : names) {
    if (candidate == name) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate);
  }
  node.fail(fmt::format("{} is unknown; Weft knows {}", quote(name, 60), known));
}

std::unique_ptr<Pattern> read_pattern(const JsonNode& node) {
  if (node.is_string()) return make_literal(std::string(node.string()));
  if (const auto literal = node.find("String")) return make_literal(std::string(literal->string()));
  const JsonNode expression = node.at("Regex");
  return expression.guarded([&] { return make_regex(expression.string()); });
}

char32_t read_character(const JsonNode& node) {
  const std::string_view text = node.string();
  if (text.empty() || character_at(text.data()).length != text.size())
    node.fail(fmt::format("{}, not one character", node.kind()));
  return character_at(text.data()).value;
}

SplitBehavior read_behavior(const JsonNode& node) {
  static constexpr Named<SplitBehavior> kNames[] = {{"Removed", SplitBehavior::kRemoved},
                                                    {"Isolated", SplitBehavior::kIsolated},
                                                    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
                                                    {"MergedWithNext", SplitBehavior::kMergedWithNext},
                                                    {"Contiguous", SplitBehavior::kContiguous}};
  return one_of(node, kNames);
}

struct Metaspace {
  char32_t replacement;
  PrependScheme scheme;
};
Metaspace read_metaspace(const JsonNode& node) {
  static constexpr Named<PrependScheme> kNames[] = {
      {"first", PrependScheme::kFirst}, {"never", PrependScheme::kNever}, {"always", PrependScheme::kAlways}};
  Metaspace metaspace{read_character(node.at("replacement")), PrependScheme::kAlways};
  const auto scheme = node.find("prepend_scheme");
  if (scheme) metaspace.scheme = one_of(*scheme, kNames);
  if (!node.boolean_or("add_prefix_space", true)) {  // how older files say never
    if (scheme && metaspace.scheme != PrependScheme::kNever)
      node.fail("add_prefix_space is false and prepend_scheme is not \"never\"; keep one of the two");
    metaspace.scheme = PrependScheme::kNever;
  }
  return metaspace;
}

enum class NormalizerKind {
  kBert,
  kStrip,
  kStripAccents,
  kNfc,
  kNfd,
  kNfkc,
  kNfkd,
  kSequence,
  kLowercase,
  kNmt,
  kPrecompiled,
  kReplace,
  kPrepend,
  kByteLevel
};
constexpr Named<NormalizerKind> kNormalizers[] = {{"BertNormalizer", NormalizerKind::kBert},
                                                  {"Strip", NormalizerKind::kStrip},
                                                  {"StripAccents", NormalizerKind::kStripAccents},
                                                  {"NFC", NormalizerKind::kNfc},
                                                  {"NFD", NormalizerKind::kNfd},
                                                  {"NFKC", NormalizerKind::kNfkc},
                                                  {"NFKD", NormalizerKind::kNfkd},
                                                  {"Sequence", NormalizerKind::kSequence},
                                                  {"Lowercase", NormalizerKind::kLowercase},
                                                  {"Nmt", NormalizerKind::kNmt},
                                                  {"Precompiled", NormalizerKind::kPrecompiled},
                                                  {"Replace", NormalizerKind::kReplace},
                                                  {"Prepend", NormalizerKind::kPrepend},
                                                  {"ByteLevel", NormalizerKind::kByteLevel}};

enum class PreTokenizerKind {
  kBert,
  kByteLevel,
  kDelimiter,
  kMetaspace,
  kWhitespace,
  kWhitespaceSplit,
  kPunctuation,
  kDigits,
  kSplit,
  kScripts,
  kFixedLength,
  kSequence
};
constexpr Named<PreTokenizerKind> kPreTokenizers[] = {{"BertPreTokenizer", PreTokenizerKind::kBert},
                                                      {"ByteLevel", PreTokenizerKind::kByteLevel},
                                                      {"CharDelimiterSplit", PreTokenizerKind::kDelimiter},
                                                      {"Metaspace", PreTokenizerKind::kMetaspace},
                                                      {"Whitespace", PreTokenizerKind::kWhitespace},
                                                      {"WhitespaceSplit", PreTokenizerKind::kWhitespaceSplit},
                                                      {"Punctuation", PreTokenizerKind::kPunctuation},
                                                      {"Digits", PreTokenizerKind::kDigits},
                                                      {"Split", PreTokenizerKind::kSplit},
                                                      {"UnicodeScripts", PreTokenizerKind::kScripts},
                                                      {"FixedLength", PreTokenizerKind::kFixedLength},
                                                      {"Sequence", PreTokenizerKind::kSequence}};

using StepKind = DecoderStep::Kind;
constexpr Named<StepKind> kDecoders[] = {{"BPEDecoder", StepKind::kBpe},
                                         {"ByteLevel", StepKind::kByteLevel},
                                         {"WordPiece", StepKind::kWordPiece},
                                         {"Metaspace", StepKind::kMetaspace},
                                         {"CTC", StepKind::kCtc},
                                         {"Replace", StepKind::kReplace},
                                         {"Fuse", StepKind::kFuse},
                                         {"Strip", StepKind::kStrip},
                                         {"ByteFallback", StepKind::kByteFallback}};

void append_steps(const JsonNode& node, std::vector<DecoderStep>& steps) {
  const JsonNode type = node.at("type");
  if (type.string() == "Sequence") {
    for (const JsonNode& part : node.at("decoders").items(kMaxParts)) append_steps(part, steps);
    return;
  }
  DecoderStep step{one_of(type, kDecoders)};
  if (steps.size() >= kMaxParts) node.fail(fmt::format("more than {} decoders", kMaxParts));
  switch (step.kind) {
    case StepKind::kBpe: step.text = node.string_or("suffix", "</w>"); break;
    case StepKind::kWordPiece:
      step.text = node.string_or("prefix", "##");
      step.flag = node.boolean_or("cleanup", true);
      break;
    case StepKind::kMetaspace: {
      const Metaspace metaspace = read_metaspace(node);
      append_character(step.text, metaspace.replacement);
      step.flag = metaspace.scheme != PrependScheme::kNever;
      break;
    }
    case StepKind::kCtc:
      step.text = node.string_or("pad_token", "<pad>");
      step.other = node.string_or("word_delimiter_token", "|");
      step.flag = node.boolean_or("cleanup", true);
      break;
    case StepKind::kReplace:
      step.pattern = read_pattern(node.at("pattern"));
      step.other = node.at("content").string();
      break;
    case StepKind::kStrip:
      append_character(step.text, read_character(node.at("content")));
      step.start = node.at("start").integer(0, 1 << 20);
      step.stop = node.at("stop").integer(0, 1 << 20);
      break;
    default: break;
  }
  steps.push_back(std::move(step));
}

}  // namespace

NormalizerPtr read_normalizer(const JsonNode& node) {
  switch (one_of(node.at("type"), kNormalizers)) {
    case NormalizerKind::kBert: {
      BertNormalizerOptions options{.clean_text = node.boolean_or("clean_text", true),
                                    .handle_chinese_chars = node.boolean_or("handle_chinese_chars", true),
                                    .strip_accents = std::nullopt,
                                    .lowercase = node.boolean_or("lowercase", true)};
      if (const auto strip = node.find("strip_accents")) options.strip_accents = strip->boolean();
      return make_bert_normalizer(options);
    }
    case NormalizerKind::kStrip:
      return make_strip(node.boolean_or("strip_left", true), node.boolean_or("strip_right", true));
    case NormalizerKind::kStripAccents: return make_strip_accents();
    case NormalizerKind::kNfc: return make_unicode_form(NormalizationForm::kNfc);
    case NormalizerKind::kNfd: return make_unicode_form(NormalizationForm::kNfd);
    case NormalizerKind::kNfkc: return make_unicode_form(NormalizationForm::kNfkc);
    case NormalizerKind::kNfkd: return make_unicode_form(NormalizationForm::kNfkd);
    case NormalizerKind::kSequence: {
      std::vector<NormalizerPtr> parts;
      for (const JsonNode& part : node.at("normalizers").items(kMaxParts))
        if (auto normalizer = read_normalizer(part)) parts.push_back(std::move(normalizer));
      if (parts.empty()) return nullptr;
      return parts.size() == 1 ? std::move(parts[0]) : make_normalizer_sequence(std::move(parts));
    }
    case NormalizerKind::kLowercase: return make_lowercase();
    case NormalizerKind::kNmt: return make_nmt();
    case NormalizerKind::kPrecompiled: {
      const JsonNode map = node.at("precompiled_charsmap");
      return map.guarded([&] { return make_character_map(decode_base64(map.string())); });
    }
    case NormalizerKind::kReplace:
      return make_replace(read_pattern(node.at("pattern")), std::string(node.at("content").string()));
    case NormalizerKind::kPrepend: return make_prepend(std::string(node.at("prepend").string()));
    case NormalizerKind::kByteLevel: return make_byte_level_normalizer();
  }
  throw InternalError("a normalizer without a reader");
}

bool ends_in_byte_level(const JsonNode& node) {
  const PreTokenizerKind kind = one_of(node.at("type"), kPreTokenizers);
  if (kind == PreTokenizerKind::kByteLevel) return true;
  if (kind != PreTokenizerKind::kSequence) return false;
  const std::vector<JsonNode> parts = node.at("pretokenizers").items(kMaxParts);
  if (parts.empty() || !ends_in_byte_level(parts.back())) return false;
  return std::none_of(parts.begin(), parts.end() - 1, [](const JsonNode& part) {
    const PreTokenizerKind inner = one_of(part.at("type"), kPreTokenizers);
    return inner == PreTokenizerKind::kByteLevel || inner == PreTokenizerKind::kSequence;
  });
}

PreTokenizerPtr read_pre_tokenizer(const JsonNode& node, bool keep_bytes) {
  switch (one_of(node.at("type"), kPreTokenizers)) {
    case PreTokenizerKind::kBert: return make_bert_pre_tokenizer();
    case PreTokenizerKind::kByteLevel:
      return make_byte_level(node.boolean_or("add_prefix_space", true), node.boolean_or("use_regex", true), keep_bytes);
    case PreTokenizerKind::kDelimiter: return make_character_delimiter(read_character(node.at("delimiter")));
    case PreTokenizerKind::kMetaspace: {
      const Metaspace metaspace = read_metaspace(node);
      return make_metaspace(metaspace.replacement, metaspace.scheme, node.boolean_or("split", true));
    }
    case PreTokenizerKind::kWhitespace: return make_whitespace();
    case PreTokenizerKind::kWhitespaceSplit: return make_whitespace_split();
    case PreTokenizerKind::kPunctuation: {
      const auto behavior = node.find("behavior");
      return make_punctuation(behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated);
    }
    case PreTokenizerKind::kDigits: return make_digits(node.boolean_or("individual_digits", false));
    case PreTokenizerKind::kSplit: {
      auto pattern = read_pattern(node.at("pattern"));
      const SplitBehavior behavior = read_behavior(node.at("behavior"));
      return make_split(std::move(pattern), behavior, node.boolean_or("invert", false));
    }
    case PreTokenizerKind::kScripts: return make_unicode_scripts();
    case PreTokenizerKind::kFixedLength: return make_fixed_length(node.integer_or("length", 5, 1, 1 << 20));
    case PreTokenizerKind::kSequence: {
      std::vector<PreTokenizerPtr> parts;
      const std::vector<JsonNode> nodes = node.at("pretokenizers").items(kMaxParts);
      for (const JsonNode& part : nodes)
        parts.push_back(read_pre_tokenizer(part, keep_bytes && &part == &nodes.back()));
      return make_pre_tokenizer_sequence(std::move(parts));
    }
  }
  throw InternalError("a pre-tokenizer without a reader");
}

std::vector<DecoderStep> read_decoder(const JsonNode& node) {
  std::vector<DecoderStep> steps;
  append_steps(node, steps);
  return steps;
}

}  // namespace weft::text
