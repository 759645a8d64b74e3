// The face of text encoders: embeddings, classes, orders, labels and masks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "encoder/state.hpp"
#include "layers/rows.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::encoder {
namespace {

using detail::ModelState;
using layers::places_of_largest;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Of one text: a softmax, or the sigmoid of each.
std::vector<double> probabilities_of(std::span<const float> scores, bool is_multi_label) {
  std::vector<double> made(scores.begin(), scores.end());
  if (is_multi_label || scores.size() == 1) {
    for (double& each : made) each = sigmoid(each);
    return made;
  }
  const double most = *std::max_element(made.begin(), made.end());
  double total = 0;
  for (double& each : made) total += each = std::exp(each - most);
  for (double& each : made) each /= total;
  return made;
}

/// Puts the rows of passes in the order of the texts.
class Rows {
 public:
  explicit Rows(std::size_t texts) : texts_(texts) {}
  void take(const Pass& pass, const Tensor& made) {
    width_ = static_cast<std::size_t>(made.dim(1));
    values_.resize(texts_ * width_);
    const std::vector<float> rows = made.to_vector<float>();
    for (std::size_t row = 0; row < pass.texts.size(); ++row)
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row * width_), width_,
                  values_.begin() + static_cast<std::ptrdiff_t>(pass.texts[row] * width_));
  }
  /// Of each row the first `width` columns.
  void narrow(std::size_t width) {
    for (std::size_t row = 0; row < texts_; ++row)
      std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(row * width_), width,
                  values_.begin() + static_cast<std::ptrdiff_t>(row * width));
    values_.resize(texts_ * width);
    width_ = width;
  }
  void normalize() { layers::normalize_rows(values_, width_); }
  Tensor tensor() const {
    return tensor_from_bytes(values_.data(), {static_cast<Extent>(texts_), static_cast<Extent>(width_)}, DType::f32,
                             kCpu);
  }

 private:
  std::size_t texts_, width_ = 0;
  std::vector<float> values_;
};

const std::string* prompt_of(const ModelState& state, const EmbedOptions& options) {
  const std::optional<std::string>& name = options.prompt ? options.prompt : state.modules.default_prompt;
  if (!name || name->empty()) return nullptr;
  const auto found = state.modules.prompts.find(*name);
  if (found == state.modules.prompts.end()) {
    std::string known;
    for (const auto& [each, text] : state.modules.prompts) known += (known.empty() ? "" : ", ") + each;
    throw UsageError(
        fmt::format("encoder: the model has no prompt {}; {}", quote(*name, 60),
                    known.empty() ? "it has none: put one before your texts yourself" : "it has " + known));
  }
  if (!state.modules.pools_prompts && !found->second.empty())
    throw UsageError("encoder: the model leaves the tokens of prompts out of its pooling, which Weft does not do");
  return &found->second;
}

Tensor logits_of(ModelState& state, const std::vector<TokenText>& texts) {
  Rows rows(texts.size());
  state.run(*state.class_pass, texts, [&](const Pass& pass, const Tensor& made) { rows.take(pass, made); });
  return rows.tensor();
}

}  // namespace

std::string_view name_of(Task task) {
  switch (task) {
    case Task::embed: return "embed texts";
    case Task::classify: return "classify texts";
    case Task::label_tokens: return "label tokens";
    case Task::fill_masks: return "fill masks";
    case Task::answer: return "find answers";
  }
  return "";
}

Model load(const std::filesystem::path& path, const LoadOptions& options) {
  try {
    return Model(std::make_shared<ModelState>(path, options));
  } catch (Error& error) {
    error.add_context("loading the text encoder " + path.string());
    throw;
  }
}

bool classifies_texts(const std::filesystem::path& folder) {
  try {
    return has_classes(read_json_file(folder / "config.json", kConfigLimits));
  } catch (const Error&) {
    return false;
  }
}

bool is_encoder(const std::filesystem::path& path) {
  try {
    if (!std::filesystem::is_directory(path)) {
      if (io::source_kind(path) != io::SourceKind::gguf) return false;
      return is_encoder_architecture(
          io::GgufFile::open(path).metadata().get_or<std::string>("general.architecture", ""));
    }
    // A language model that embeds has modules too; the config.json of old folders is that of a module.
    if (std::filesystem::exists(path / "modules.json") && !std::filesystem::exists(path / "config.json")) return true;
    return describes_encoder(read_json_file(path / "config.json", kConfigLimits));
  } catch (const Error&) {
    return false;
  }
}

Tensor Model::embed(std::span<const std::string> texts, const EmbedOptions& options) const {
  if (texts.empty()) throw UsageError("encoder: there are no texts; give at least one");
  if (options.width < 0 || options.width > width())
    throw UsageError(fmt::format("encoder: a width of {}; embeddings of this model have {}", options.width, width()));
  const std::string* prompt = prompt_of(*state_, options);
  std::vector<TokenText> tokens;
  for (const std::string& text : texts)
    tokens.push_back(state_->tokens_of(prompt ? *prompt + text : text, nullptr, options.too_long));
  Rows rows(texts.size());
  state_->run(*state_->embed_pass, tokens, [&](const Pass& pass, const Tensor& made) { rows.take(pass, made); });
  if (options.width > 0) rows.narrow(static_cast<std::size_t>(options.width));
  if (options.normalize) rows.normalize();
  return rows.tensor();
}

Tensor Model::states(std::string_view text) const {
  const std::vector<TokenText> tokens{state_->tokens_of(text, nullptr, TooLong::error)};
  Tensor all;
  state_->run(*state_->states_pass, tokens, [&](const Pass&, const Tensor& made) {
    all = narrow(reshape(narrow(made, 0, 0, 1), {made.dim(1), made.dim(2)}), 0, 0,
                 static_cast<Extent>(tokens[0].tokens.size()));
  });
  return all.to(kCpu).eval();
}

Tensor Model::logits(std::span<const std::string> texts, TooLong too_long) const { return logits(texts, {}, too_long); }

Tensor Model::logits(std::span<const std::string> texts, std::span<const std::string> pairs, TooLong too_long) const {
  state_->require(Task::classify);
  if (texts.empty()) throw UsageError("encoder: there are no texts; give at least one");
  if (!pairs.empty() && pairs.size() != texts.size())
    throw UsageError(
        fmt::format("encoder: {} texts and {} pairs; give one pair for each text", texts.size(), pairs.size()));
  std::vector<TokenText> tokens;
  for (std::size_t i = 0; i < texts.size(); ++i)
    tokens.push_back(state_->tokens_of(texts[i], pairs.empty() ? nullptr : &pairs[i], too_long));
  return logits_of(*state_, tokens);
}

std::vector<Label> Model::classify(std::string_view text, std::size_t count, std::string_view pair,
                                   TooLong too_long) const {
  const std::string texts[] = {std::string(text)}, pairs[] = {std::string(pair)};
  const Tensor scores =
      logits(texts, pair.empty() ? std::span<const std::string>() : std::span<const std::string>(pairs), too_long);
  const std::vector<double> shares = probabilities_of(scores.to_vector<float>(), state_->config.is_multi_label);
  std::vector<Label> labels;
  for (const std::size_t i : places_of_largest(std::span<const double>(shares), count))
    labels.push_back({static_cast<Extent>(i), state_->config.class_names[i], shares[i]});
  return labels;
}

std::vector<Ranked> Model::rerank(std::string_view query, std::span<const std::string> documents,
                                  std::size_t count) const {
  state_->require(Task::classify);
  if (documents.empty()) throw UsageError("encoder: there are no documents; give at least one");
  const std::vector<std::string> queries(documents.size(), std::string(query));
  const Tensor all = logits(queries, documents, TooLong::cut);
  const std::vector<float> scores = all.to_vector<float>();
  const auto classes = static_cast<std::size_t>(all.dim(1));
  std::vector<double> last;
  for (std::size_t i = 0; i < documents.size(); ++i) last.push_back(scores[i * classes + classes - 1]);
  std::vector<Ranked> order;
  for (const std::size_t i : places_of_largest(std::span<const double>(last), count == 0 ? documents.size() : count))
    order.push_back(
        {i, last[i],
         probabilities_of(std::span(scores).subspan(i * classes, classes), state_->config.is_multi_label).back()});
  return order;
}

std::vector<TokenLabel> Model::label_tokens(std::string_view text) const {
  state_->require(Task::label_tokens);
  const std::vector<TokenText> tokens{state_->tokens_of(text, nullptr, TooLong::error)};
  std::vector<float> scores;
  state_->run(*state_->token_pass, tokens, [&](const Pass&, const Tensor& made) { scores = made.to_vector<float>(); });
  const std::size_t classes = state_->config.class_names.size();
  std::vector<TokenLabel> labels;
  for (std::size_t i = 0; i < tokens[0].tokens.size(); ++i) {
    const text::TokenId token = tokens[0].tokens[i];
    if (state_->tokenizer.is_special(token)) continue;
    const std::vector<double> shares = probabilities_of(std::span(scores).subspan(i * classes, classes), false);
    const std::size_t best = places_of_largest(std::span<const double>(shares), 1)[0];
    labels.push_back({token,
                      state_->tokenizer.token_bytes(token),
                      {static_cast<Extent>(best), state_->config.class_names[best], shares[best]}});
  }
  return labels;
}

std::vector<Entity> Model::entities(std::string_view text) const { return entities(label_tokens(text)); }

std::vector<Entity> Model::entities(std::span<const TokenLabel> labels) const {
  std::vector<Entity> found;
  std::vector<text::TokenId> ids;
  const auto close = [&] {
    if (ids.empty()) return;
    Entity& entity = found.back();
    entity.text = state_->tokenizer.decode(ids);
    while (entity.text.starts_with(' ')) entity.text.erase(0, 1);
    entity.probability /= static_cast<double>(entity.tokens);
    ids.clear();
  };
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& name = labels[i].label.name;
    const bool begins = name.starts_with("B-"), goes_on = name.starts_with("I-");
    const std::string kind = begins || goes_on ? name.substr(2) : name;
    if (kind == "O") {
      close();
      continue;
    }
    if (begins || ids.empty() || found.back().name != kind) {
      close();
      found.push_back({kind, "", 0, i, 0});
    }
    ids.push_back(labels[i].token);
    found.back().probability += labels[i].label.probability;
    ++found.back().tokens;
  }
  close();
  return found;
}

std::vector<std::vector<Fill>> Model::fill_masks(std::string_view text, std::size_t count) const {
  state_->require(Task::fill_masks);
  const TokenText tokens = state_->tokens_of(text, nullptr, TooLong::error, true);
  const text::TokenId mask = state_->tokenizer.id_of(state_->mask);
  std::vector<std::int32_t> places;
  for (std::size_t i = 0; i < tokens.tokens.size(); ++i)
    if (tokens.tokens[i] == mask) places.push_back(static_cast<std::int32_t>(i));
  if (state_->mask.empty() || places.empty())
    throw UsageError(fmt::format("encoder: the text has no mask to fill; write {} where a word is wanted",
                                 state_->mask.empty() ? "the mask token" : state_->mask));
  const std::vector<TokenText> texts{tokens};
  const Pass pass = passes_of(texts, {.length_max = state_->config.length})[0];
  const Padded given = padded(pass, texts, state_->has_types(), state_->device);
  std::vector<Tensor> arguments{given.tokens, given.lengths};
  if (given.types.defined()) arguments.push_back(given.types);
  arguments.push_back(
      tensor_from_bytes(places.data(), {static_cast<Extent>(places.size())}, DType::i32, state_->device));
  const std::vector<float> scores = (*state_->mask_pass)(arguments)[0].to_vector<float>();
  const std::size_t words = scores.size() / places.size();
  std::vector<std::vector<Fill>> fills;
  for (std::size_t at = 0; at < places.size(); ++at) {
    const std::vector<double> shares = probabilities_of(std::span(scores).subspan(at * words, words), false);
    fills.emplace_back();
    for (const std::size_t i : places_of_largest(std::span<const double>(shares), count)) {
      const auto token = static_cast<text::TokenId>(i);
      fills.back().push_back({token, state_->tokenizer.token_bytes(token), shares[i]});
    }
  }
  return fills;
}

const std::string& Model::mask() const { return state_->mask; }
Task Model::task() const { return state_->task; }
Extent Model::width() const {
  return state_->modules.splade ? state_->config.vocabulary : state_->modules.width(state_->config.hidden);
}
Extent Model::length() const { return state_->length; }
const std::vector<std::string>& Model::classes() const { return state_->config.class_names; }
const std::map<std::string, std::string>& Model::prompts() const { return state_->modules.prompts; }
std::vector<std::int32_t> Model::encode(std::string_view text) const {
  return state_->tokenizer.encode(text, {.parse_special = false});
}

std::string Model::describe() const {
  const EncoderConfig& c = state_->config;
  const std::string classes = state_->task == Task::classify || state_->task == Task::label_tokens
                                  ? fmt::format(" of {} classes", c.class_names.size())
                                  : "";
  return fmt::format(
      "{}: a model to {}{}; {} layers of width {}, {} heads; texts of up to {} tokens; embeddings of {}; "
      "{:.1f} MB of weights on {}",
      c.family, name_of(state_->task), classes, c.layers, c.hidden, c.heads, state_->length, width(),
      static_cast<double>(state_->bytes) / 1e6, state_->device.to_string());
}

}  // namespace weft::encoder
