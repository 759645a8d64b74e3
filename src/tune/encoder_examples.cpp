// Lines of JSON that text encoders learn from.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "base/xxh64.hpp"
#include "encoder/config.hpp"
#include "encoder/heads.hpp"
#include "tune/json_lines.hpp"
#include "weft/encoder.hpp"
#include "weft/error.hpp"
#include "weft/tune_encoder.hpp"

namespace weft::tune {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kDataBytesMax = std::uint64_t{4} << 30;
constexpr std::int64_t kClassesMax = 1 << 20;

struct NamedObjective {
  const char* name;
  Objective objective;
};
constexpr NamedObjective kObjectives[] = {{"single-label", Objective::single_label},
                                          {"multi-label", Objective::multi_label},
                                          {"regression", Objective::regression},
                                          {"tokens", Objective::tokens},
                                          {"ranking", Objective::ranking},
                                          {"cosine", Objective::cosine},
                                          {"cosent", Objective::cosent},
                                          {"cross-encoder", Objective::cross_encoder}};

constexpr std::pair<const char*, const char*> kPairs[] = {
    {"sentence1", "sentence2"}, {"text", "text_pair"}, {"query", "document"}};

bool has_classes(Objective objective) {
  return objective == Objective::single_label || objective == Objective::multi_label || objective == Objective::tokens;
}

/// Classes of the head that a model has, if it is one for this objective.
std::vector<std::string> classes_of_model(const fs::path& model, Objective objective) {
  try {
    const fs::path file = model / "config.json";
    const Json json = read_json_file(file, encoder::kConfigLimits);
    const bool fits = objective == Objective::tokens
                          ? json.at("architectures").at(0).get<std::string>().ends_with("ForTokenClassification")
                          : encoder::has_classes(json);
    return fits ? encoder::read_config(json, file.string()).class_names : std::vector<std::string>();
  } catch (const std::exception&) {
    return {};
  }
}

class EncoderLines {
 public:
  EncoderLines(const fs::path& file, const fs::path& model, std::optional<Objective> objective,
               const std::vector<std::string>& classes)
      : file_(file.string()), lines_(file), model_(model), objective_(objective), known_(classes) {}

  EncoderExamples read(std::string_view text) {
    lines_.each(text, [&](const Json& line) {
      if (!line.is_object()) refuse("the line is no object");
      take(line);
    });
    made_.objective = *objective_;
    if (has_classes(*objective_)) number_classes();
    if (*objective_ == Objective::regression || *objective_ == Objective::cross_encoder) {
      made_.classes = classes_of_model(model_, *objective_);
      if (made_.classes.size() != 1) made_.classes = {"LABEL_0"};
    }
    return std::move(made_);
  }

 private:
  [[noreturn]] void refuse(const std::string& fact) const { lines_.refuse(fact); }

  /// What the first line says; later ones must fit it.
  Objective objective_of(const Json& line) const {
    if (line.contains("tokens")) return Objective::tokens;
    if (line.contains("positive")) return Objective::ranking;
    if (line.contains("score")) return encoder::classifies_texts(model_) ? Objective::cross_encoder : Objective::cosent;
    if (line.contains("labels")) return Objective::multi_label;
    if (const auto label = line.find("label"); label != line.end())
      return label->is_array()          ? Objective::multi_label
             : label->is_number_float() ? Objective::regression
                                        : Objective::single_label;
    refuse(
        "there is nothing to learn from it; write {\"text\": ..., \"label\": ...}, {\"tokens\": [...], \"labels\": "
        "[...]}, {\"anchor\": ..., \"positive\": ..., \"negative\": ...} or {\"sentence1\": ..., \"sentence2\": ..., "
        "\"score\": ...}");
  }

  void take(const Json& line) {
    if (!objective_) objective_ = objective_of(line);
    EncoderExample example;
    Labels labels;
    switch (*objective_) {
      case Objective::tokens: {
        example.texts = words_of(line);
        labels = labels_of(either(line, "labels", "ner_tags"));
        if (labels.size() != example.texts.size())
          refuse(
              fmt::format("there are {} labels for {} words; give each word one", labels.size(), example.texts.size()));
        break;
      }
      case Objective::ranking: take_ranking(line, example); break;
      case Objective::single_label:
        example.texts = texts_of(line);
        labels = {label_of(at(line, "label"))};
        break;
      case Objective::multi_label:
        example.texts = texts_of(line);
        labels = labels_of(either(line, "labels", "label"));
        break;
      case Objective::regression:
      case Objective::cosine:
      case Objective::cosent:
      case Objective::cross_encoder:
        example.texts = texts_of(line);
        example.value = number_of(either(line, "score", "label"));
        if (*objective_ != Objective::regression && example.texts.size() != 2)
          refuse(fmt::format("{} learns from two texts and their score", name_of(*objective_)));
        if (*objective_ == Objective::cross_encoder && !(example.value >= 0 && example.value <= 1))
          refuse(fmt::format("the score is {}; cross-encoders learn scores from 0 to 1", example.value));
        break;
    }
    made_.all.push_back(std::move(example));
    labels_.push_back(std::move(labels));
  }

  void take_ranking(const Json& line, EncoderExample& example) const {
    example.texts = {text_of(line, line.contains("query") ? "query" : "anchor"), text_of(line, "positive")};
    if (const auto negative = line.find("negative"); negative != line.end() && !negative->is_null()) {
      if (negative->is_string())
        example.texts.push_back(negative->get<std::string>());
      else if (negative->is_array())
        for (const Json& each : *negative)
          example.texts.push_back(each.is_string() ? each.get<std::string>() : refuse_text("negative", each));
      else
        refuse_text("negative", *negative);
    }
    if (!made_.all.empty() && made_.all[0].texts.size() != example.texts.size())
      refuse(fmt::format("there are {} negatives, and the first example has {}; give all examples as many",
                         example.texts.size() - 2, made_.all[0].texts.size() - 2));
  }

  // ---- Values

  const Json& at(const Json& line, const char* key) const {
    const auto found = line.find(key);
    if (found == line.end() || found->is_null())
      refuse(fmt::format("there is no \"{}\", which {} learns from", key, name_of(*objective_)));
    return *found;
  }
  const Json& either(const Json& line, const char* key, const char* other) const {
    return at(line, line.contains(key) ? key : other);
  }
  [[noreturn]] std::string refuse_text(const char* key, const Json& value) const {
    refuse(fmt::format("\"{}\" is {}, not a text", key, quote(value.dump(), 60)));
  }
  std::string text_of(const Json& line, const char* key) const {
    const Json& value = at(line, key);
    return value.is_string() ? value.get<std::string>() : refuse_text(key, value);
  }
  std::vector<std::string> texts_of(const Json& line) const {
    for (const auto& [first, second] : kPairs)
      if (line.contains(second)) return {text_of(line, first), text_of(line, second)};
    return {text_of(line, "text")};
  }
  std::vector<std::string> words_of(const Json& line) const {
    const Json& words = at(line, "tokens");
    if (!words.is_array() || words.empty()) refuse("\"tokens\" is no list of words");
    std::vector<std::string> made;
    for (const Json& word : words)
      made.push_back(word.is_string() ? word.get<std::string>() : refuse_text("tokens", word));
    return made;
  }
  double number_of(const Json& value) const {
    if (!value.is_number()) refuse(fmt::format("{} is not a number", quote(value.dump(), 60)));
    return value.get<double>();
  }

  // ---- Classes: names, or numbers of them

  using Labels = std::vector<std::string>;  // a number as "#3"; all lines have one kind
  std::string label_of(const Json& value) {
    const bool is_number = value.is_number_integer();
    if (!is_number && !value.is_string())
      refuse(fmt::format("a label is {}; give the name of a class, or its number", quote(value.dump(), 60)));
    if (are_numbers_.value_or(is_number) != is_number)
      refuse("a label is a name and another one a number; give all of them in one way");
    are_numbers_ = is_number;
    if (!is_number) return value.get<std::string>();
    const auto number = value.get<std::int64_t>();
    if (number == -100 && *objective_ == Objective::tokens) return std::to_string(number);
    if (number < 0 || number >= kClassesMax) refuse(fmt::format("{} is no number of a class", number));
    most_ = std::max(most_, number);
    return std::to_string(number);
  }
  Labels labels_of(const Json& list) {
    if (!list.is_array()) refuse(fmt::format("the labels are {}, not a list", quote(list.dump(), 60)));
    Labels labels;
    for (const Json& each : list) labels.push_back(label_of(each));
    return labels;
  }

  void number_classes() {
    const bool by_number = are_numbers_.value_or(false);
    std::set<std::string> named;
    if (!by_number)
      for (const Labels& labels : labels_) named.insert(labels.begin(), labels.end());
    const auto has_all = [&](const std::vector<std::string>& classes) {
      if (by_number) return most_ < static_cast<std::int64_t>(classes.size());
      return std::all_of(named.begin(), named.end(), [&](const std::string& name) {
        return std::find(classes.begin(), classes.end(), name) != classes.end();
      });
    };
    if (!known_.empty()) {
      if (!has_all(known_))
        throw FileError(fmt::format("{}: it has classes that the training data has not; there are {}", file_,
                                    fmt::join(known_, ", ")));
      made_.classes = known_;
    } else {
      made_.classes = classes_of_model(model_, *objective_);
      if (made_.classes.empty() || !has_all(made_.classes)) {
        made_.classes.assign(named.begin(), named.end());
        for (std::int64_t i = 0; by_number && i <= most_; ++i) made_.classes.push_back(fmt::format("LABEL_{}", i));
      }
    }
    if (*objective_ != Objective::multi_label && made_.classes.size() < 2)
      throw FileError(fmt::format("{}: all examples have the same class; there is nothing to learn", file_));
    const auto id_of = [&](const std::string& label) {
      if (by_number) return std::stoi(label);
      return static_cast<std::int32_t>(std::find(made_.classes.begin(), made_.classes.end(), label) -
                                       made_.classes.begin());
    };
    for (std::size_t i = 0; i < labels_.size(); ++i)
      for (const std::string& label : labels_[i]) made_.all[i].classes.push_back(id_of(label));
  }

  const std::string file_;
  JsonLines lines_;
  const fs::path model_;
  std::optional<Objective> objective_;
  const std::vector<std::string> known_;
  std::int64_t most_ = -1;
  std::optional<bool> are_numbers_;
  std::vector<Labels> labels_;  // of each example
  EncoderExamples made_;
};

}  // namespace

Objective objective_named(std::string_view name) {
  std::vector<std::string_view> known;
  for (const NamedObjective& each : kObjectives) {
    if (name == each.name) return each.objective;
    known.push_back(each.name);
  }
  throw UsageError(fmt::format("tune: an objective of {}; choose {}", quote(name, 40), fmt::join(known, ", ")));
}

std::string_view name_of(Objective objective) {
  for (const NamedObjective& each : kObjectives)
    if (objective == each.objective) return each.name;
  return "";
}

EncoderExamples read_encoder_examples(const fs::path& file, const fs::path& model, std::optional<Objective> objective,
                                      const std::vector<std::string>& classes) {
  const std::string text = read_text_file(file, kDataBytesMax);
  require_utf8(text, file.string());
  EncoderExamples examples = EncoderLines(file, model, objective, classes).read(text);
  examples.hash = xxh64(text);
  return examples;
}

}  // namespace weft::tune
