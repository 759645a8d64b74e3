// The face of language models.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/quote.hpp"
#include "io/quantised_folder.hpp"
#include "llm/most_probable.hpp"
#include "llm/reasoning.hpp"
#include "llm/run.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::llm {

using text::TokenId;

std::string_view name_of(Finish finish) {
  constexpr std::string_view names[] = {"end of text", "stop text", "length", "cancelled"};
  return names[static_cast<std::size_t>(finish)];
}

Model load(const std::filesystem::path& path, const LoadOptions& options) {
  try {
    const auto begin = std::chrono::steady_clock::now();
    auto engine = std::make_shared<detail::Engine>(path, options);
    if (options.on_load)
      options.on_load({std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                       !engine->packed_file().empty(), engine->device(), engine->weight_bytes(), engine->cache_bytes(),
                       engine->parts()});
    return Model(std::move(engine));
  } catch (Error& error) {
    error.add_context("loading the model " + path.string());
    throw;
  }
}

std::shared_ptr<detail::Engine> detail::engine_of(const Model& model) { return model.engine_; }

Model detail::planned_model(const std::filesystem::path& path, const LoadOptions& options) {
  try {
    const io::TensorSource source = io::with_quantised_layers(io::TensorSource::open(path));
    return Model(std::make_shared<Engine>(source, options, Engine::Planned{.with_text = true}));
  } catch (Error& error) {
    error.add_context("planning the model " + path.string());
    throw;
  }
}

std::uint64_t batch_seed(std::uint64_t seed, std::size_t index) {
  if (index == 0) return seed;
  // SplitMix64 (Steele et al. 2014): neighbouring seeds and indices give streams that have nothing in common.
  std::uint64_t z = seed + 0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(index);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// ---- Generation --------------------------------------------------------------------------------------------------------

Generation::Generation(std::unique_ptr<detail::Run> run) : run_(std::move(run)) {}
Generation::Generation(Generation&&) noexcept = default;
Generation::~Generation() = default;

void Generation::advance() { done_ = !run_->next(piece_); }

Generation::iterator Generation::begin() {
  if (!started_) {
    started_ = true;
    advance();
  }
  return iterator(this);
}
Generation::iterator& Generation::iterator::operator++() {
  owner_->advance();
  return *this;
}

const Result& Generation::result() {
  for (auto it = begin(); it != end(); ++it) {
  }
  return run_->result();
}

// ---- Model -------------------------------------------------------------------------------------------------------------

namespace {

text::OrderedJson parsed(const std::string& json, const char* what, bool is_list) {
  if (json.empty()) return is_list ? text::OrderedJson(nullptr) : text::OrderedJson::object();
  try {
    text::OrderedJson value = text::parse_ordered_json(json, what);
    if (is_list ? value.is_array() : value.is_object()) return value;
  } catch (const FileError& error) {  // of the caller's text, not of a file
    throw UsageError(error.what());
  }
  throw UsageError(fmt::format("{}: the JSON is not {}", what, is_list ? "a list [...]" : "an object {...}"));
}

text::OrderedJson part_json(std::string_view text) { return {{"type", "text"}, {"text", text}}; }

/// The content is a list of parts if it has an image, or with `as_list`; else a text.
text::OrderedJson json_of(const Message& m, bool as_list) {
  std::string content = m.parts.empty() ? m.content : "";
  bool has_image = false;
  for (const ContentPart& part : m.parts) {
    content += part.text;
    has_image = has_image || part.image.defined();
  }
  text::OrderedJson json{{"role", m.role}, {"content", std::move(content)}};
  if (has_image || as_list) {
    text::OrderedJson list = text::OrderedJson::array();
    for (const ContentPart& part : m.parts)
      list.push_back(part.image.defined() ? text::OrderedJson{{"type", "image"}} : part_json(part.text));
    if (m.parts.empty() && !m.content.empty()) list.push_back(part_json(m.content));
    json["content"] = std::move(list);
  }
  if (!m.reasoning.empty()) json["reasoning_content"] = m.reasoning;
  if (!m.tool_calls.empty()) json["tool_calls"] = parsed(m.tool_calls, "tool_calls of a message", true);
  if (!m.name.empty()) json["name"] = m.name;
  if (!m.tool_call_id.empty()) json["tool_call_id"] = m.tool_call_id;
  return json;
}

[[noreturn]] void refuse_images(const detail::Engine& engine) {
  if (engine.config().lacks_image_settings)
    throw UsageError(
        fmt::format("{}: the folder has no preprocessor_config.json, which says how images are resized; download it "
                    "beside the weights",
                    engine.config().source));
  throw UsageError(fmt::format(
      "{}: the model reads no images; leave them out, or take a model that sees (docs/vision.md){}",
      engine.config().source,
      engine.config().from_gguf ? ". If it has an mmproj file, name that, or put it beside the model" : ""));
}

std::vector<Tensor> images_of(const std::vector<Message>& messages) {
  std::vector<Tensor> images;
  for (const Message& m : messages)
    for (const ContentPart& part : m.parts)
      if (part.image.defined()) images.push_back(part.image);
  return images;
}

text::Rendered rendered(const detail::Engine& engine, const std::vector<Message>& messages,
                        const ChatOptions& options) {
  const ModelText& v = engine.text();
  if (!v.chat)
    throw UsageError(fmt::format("{}: the model has no chat template, so it is not made for chats; use generate",
                                 engine.config().source));
  if (!engine.image_reader() && !images_of(messages).empty()) refuse_images(engine);
  text::OrderedJson list = text::OrderedJson::array();
  for (const Message& m : messages) list.push_back(json_of(m, engine.shows_lists()));
  return v.chat->render(list, {.tools = parsed(options.tools, "tools", true),
                               .documents = parsed(options.documents, "documents", true),
                               .add_generation_prompt = options.add_generation_prompt,
                               .variables = parsed(options.variables, "variables", false),
                               .template_name = options.template_name,
                               .now = {}});
}

std::vector<TokenId> tokens_of(const detail::Engine& engine, const text::Rendered& chat) {
  std::vector<text::TextSegment> segments;
  for (const jinja::Segment& s : chat.segments) segments.push_back({s.text, !s.from_user});
  // Templates write the tokens around a text themselves.
  return engine.text().tokenizer->encode(segments, false);
}

using Images = std::vector<std::shared_ptr<detail::ImageRows>>;

Images seen(detail::Engine& engine, std::span<const Tensor> images) {
  const detail::ImageReader* reader = engine.image_reader();
  if (!reader && !images.empty()) refuse_images(engine);
  Images all;
  for (const Tensor& image : images) {
    vision::PreparedImage prepared = reader->prepare(image);
    const Extent rows = reader->rows_of(prepared), held = reader->tile_rows(prepared) * reader->tiles_of(prepared);
    all.push_back(engine.images().put(std::move(prepared), rows, static_cast<Extent>(engine.row_width()), held));
  }
  return all;
}

/// The text with what the model was trained to see in the place of each marker, from image `next` on.
std::string with_rows(const detail::ImageReader& reader, std::string_view text, const Images& images,
                      std::size_t& next) {
  std::string result;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(reader.marker(), at);
    result += text.substr(at, found - at);
    if (found == std::string_view::npos) return result;
    if (next < images.size()) result += reader.text_of(images[next]->image);
    ++next;
    at = found + reader.marker().size();
  }
}

void check_places(std::size_t places, const Images& images, const detail::ImageReader& reader, std::string_view where) {
  if (places != images.size())
    throw UsageError(fmt::format("llm: {} has {} place{} for images (\"{}\"), and there {} {}", where, places,
                                 places == 1 ? "" : "s", reader.marker(), images.size() == 1 ? "is" : "are",
                                 images.size()));
}

/// The ids of the images' rows in the place of their tokens.
void put_rows(std::vector<TokenId>& tokens, const Images& images, const detail::ImageReader& reader) {
  auto place = tokens.begin();
  const auto next_place = [&] { return std::find(place, tokens.end(), reader.row_token()); };
  for (const auto& image : images)
    for (Extent i = 0; i < image->count; ++i) {
      if ((place = next_place()) == tokens.end())
        throw UsageError(
            "llm: the tokenizer does not keep the image marker whole; are its added tokens those of the model?");
      *place++ = image->first - static_cast<TokenId>(i);
    }
}

}  // namespace

Generation Model::chat(const std::vector<Message>& messages, const GenerateOptions& options,
                       const ChatOptions& chat) const {
  const text::Rendered prompt = rendered(*engine_, messages, chat);
  GenerateOptions own = options;
  // A grammar is for the answer, not for the reasoning that the template has opened.
  if (own.grammar && own.grammar_after.empty() && opens_reasoning(prompt.text())) own.grammar_after = kReasoningEnd;
  return Generation(std::make_unique<detail::Run>(engine_, prompt_of(prompt, messages), std::move(own)));
}
Generation Model::describe_image(const Tensor& image, std::string_view text, const GenerateOptions& options,
                                 const ChatOptions& chat) const {
  Message message{"user", ""};
  message.parts = {image};
  if (!text.empty()) message.parts.emplace_back(std::string(text));
  return this->chat({message}, options, chat);
}
Generation Model::generate(const Prompt& prompt, const GenerateOptions& options) const {
  return Generation(std::make_unique<detail::Run>(engine_, prompt, options));
}
Generation Model::generate(std::string_view prompt, const GenerateOptions& options) const {
  return generate(std::span<const std::int32_t>(
                      engine_->text().tokenizer->encode(prompt, {.parse_special = options.parse_special})),
                  options);
}
Generation Model::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options) const {
  return Generation(
      std::make_unique<detail::Run>(engine_, Prompt(std::vector<TokenId>(prompt.begin(), prompt.end())), options));
}
std::vector<Result> Model::generate_batch(std::span<const std::string> prompts, const GenerateOptions& options) const {
  std::vector<std::vector<TokenId>> encoded;
  for (const std::string& prompt : prompts) {
    encoded.push_back(engine_->text().tokenizer->encode(prompt, {.parse_special = options.parse_special}));
    detail::check_prompt(encoded.back(), *engine_);
  }
  check(options);
  Batch batch(*this);
  const std::uint64_t seed = detail::seed_of(options.sampling);
  std::vector<Result> results(prompts.size());
  std::map<Batch::Id, std::size_t> running;
  for (std::size_t next = 0; next < prompts.size() || !batch.empty();) {
    // A sequence that has ended makes room for the next prompt at once.
    for (; next < prompts.size() && batch.room() > 0; ++next) {
      // Each prompt draws from its own stream, so other prompts of the batch do not change it.
      GenerateOptions own = options;
      own.sampling.seed = batch_seed(seed, next);
      running.emplace(batch.add(std::move(encoded[next]), std::move(own)), next);
    }
    for (const Batch::Progress& progress : batch.step()) {
      if (!progress.has_ended) continue;
      if (!progress.error.empty()) throw UsageError(progress.error);
      results[running.at(progress.id)] = batch.result(progress.id);
      batch.remove(progress.id);
    }
  }
  return results;
}

void Model::check(const GenerateOptions& options) const { detail::check(options, *engine_); }

std::vector<float> Model::forward(std::span<const std::int32_t> tokens) const {
  if (engine_->busy) throw UsageError("llm: a generation of this model is under way; finish or destroy it first");
  std::vector<float> logits;
  engine_->cached(0).clear();
  engine_->grow(0, static_cast<Extent>(tokens.size()));
  Extent position = 0;
  while (!tokens.empty()) {
    const auto part = tokens.first(engine_->part_of(tokens, detail::Engine::kStepsMax));
    std::vector<detail::PositionedToken> batch;
    for (const std::int32_t token : part) batch.push_back({token, position++, 0});
    const std::vector<float> rows = engine_->all_logits(batch).to_vector<float>();
    logits.insert(logits.end(), rows.begin(),
                  rows.begin() + static_cast<std::ptrdiff_t>(part.size() * static_cast<std::size_t>(vocabulary())));
    tokens = tokens.subspan(part.size());
  }
  return logits;
}

Perplexity Model::perplexity(std::string_view text, const PerplexityOptions& options,
                             const std::function<void(const Perplexity&)>& progress) const {
  const Extent window = options.window != 0 ? options.window : std::min<Extent>(context(), 512);
  if (options.windows_max < 0)
    throw UsageError(fmt::format("llm: {} windows of a text; give at least 1, or 0 for all", options.windows_max));
  if (window < 4 || window > context())
    throw UsageError(fmt::format("llm: a window of {} tokens; give 4 to {}, the context", window, context()));
  // Where the tokenizer begins texts with a token, as that of Llama does, each window begins with it.
  const std::vector<std::int32_t> around = encode("");
  const bool begins = !around.empty();
  std::vector<std::int32_t> tokens = encode(text, false);
  if (begins) tokens.insert(tokens.begin(), around[0]);
  const auto size = static_cast<std::size_t>(window);
  if (tokens.size() < size)
    throw UsageError(
        fmt::format("llm: the text has {} tokens, fewer than a window of {}; give more text, or a smaller window",
                    tokens.size(), window));
  std::size_t windows = tokens.size() / size;
  if (options.windows_max > 0) windows = std::min(windows, static_cast<std::size_t>(options.windows_max));
  const auto v = static_cast<std::size_t>(vocabulary());
  Perplexity p;
  double sum = 0, squares = 0;
  for (std::size_t w = 0; w < windows; ++w) {
    const auto part = std::span(tokens).subspan(w * size, size);
    if (begins) part[0] = around[0];
    const std::vector<float> logits = forward(part);
    for (std::size_t t = size / 2; t + 1 < size; ++t) {
      const float* row = logits.data() + t * v;
      const double loss = log_total({row, v}) - row[part[t + 1]];
      sum += loss;
      squares += loss * loss;
      ++p.tokens;
    }
    const auto n = static_cast<double>(p.tokens);
    p.mean_loss = sum / n;
    p.value = std::exp(p.mean_loss);
    p.error = n > 1 ? p.value * std::sqrt(std::max(0.0, squares / n - p.mean_loss * p.mean_loss) / (n - 1)) : 0;
    if (progress) progress(p);
  }
  return p;
}

std::vector<std::int32_t> Model::encode(std::string_view text, bool add_special) const {
  return engine_->text().tokenizer->encode(text, {.add_special = add_special});
}
std::string Model::decode(std::span<const std::int32_t> tokens) const {
  return engine_->text().tokenizer->decode(tokens, false);
}
std::string Model::token_bytes(std::int32_t token) const { return engine_->text().tokenizer->token_bytes(token); }
Tokenizer Model::tokenizer() const { return Tokenizer(engine_->text().tokenizer); }
const std::vector<std::int32_t>& Model::end_tokens() const { return engine_->text().end_tokens; }
std::string Model::render(const std::vector<Message>& messages, const ChatOptions& chat) const {
  return rendered(*engine_, messages, chat).text();
}
std::vector<std::int32_t> Model::chat_tokens(const std::vector<Message>& messages, const ChatOptions& chat) const {
  return chat_prompt(messages, chat).tokens();
}
Prompt Model::chat_prompt(const std::vector<Message>& messages, const ChatOptions& chat) const {
  return prompt_of(rendered(*engine_, messages, chat), messages);
}
Prompt Model::prompt_of(const jinja::Rendered& chat, const std::vector<Message>& messages) const {
  Images rows = seen(*engine_, images_of(messages));
  if (rows.empty()) return Prompt(tokens_of(*engine_, chat));
  const detail::ImageReader& reader = *engine_->image_reader();
  text::Rendered whole = chat;
  std::size_t places = 0;
  for (jinja::Segment& segment : whole.segments)
    if (!segment.from_user) segment.text = with_rows(reader, segment.text, rows, places);
  check_places(places, rows, reader, "the chat template's text");
  Prompt prompt(tokens_of(*engine_, whole));
  put_rows(prompt.tokens_, rows, reader);
  prompt.images_ = std::move(rows);
  return prompt;
}
Prompt Model::prompt(std::string_view text, std::span<const Tensor> images) const {
  Images rows = seen(*engine_, images);
  const text::Tokenizer& tokenizer = *engine_->text().tokenizer;
  if (rows.empty()) return Prompt(tokenizer.encode(text, {.parse_special = true}));
  const detail::ImageReader& reader = *engine_->image_reader();
  std::size_t places = 0;
  const std::string whole = with_rows(reader, text, rows, places);
  check_places(places, rows, reader, "the text");
  Prompt prompt(tokenizer.encode(whole, {.parse_special = true}));
  put_rows(prompt.tokens_, rows, reader);
  prompt.images_ = std::move(rows);
  return prompt;
}
bool Model::reads_images() const { return engine_->image_reader() != nullptr; }
const std::vector<std::string>& Model::notes() const { return engine_->notes(); }
Extent Model::vocabulary() const { return engine_->config().vocabulary; }
Extent Model::context() const { return engine_->context(); }
Extent Model::trained_context() const { return engine_->config().context; }
Device Model::device() const { return engine_->device(); }
std::vector<ModelPart> Model::parts() const { return engine_->parts(); }
bool Model::has_template() const { return engine_->text().chat.has_value(); }

namespace {

std::string devices_text(const detail::Engine& engine) {
  std::string text;
  for (const auto& stage : engine.stages()) text += (text.empty() ? "" : ", ") + stage->device().to_string();
  return text;
}

// A name of a file as part of a line.
std::string quoted_in(std::string_view name) {
  const std::string quoted = quote(name);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

std::string Model::describe(bool graph) const {
  const ModelConfig& c = engine_->config();
  std::string s = fmt::format(
      "{}{}{}: {} layers, width {}, {} heads ({} for keys) of {}, vocabulary {}, context {} of {}; {:.1f} MB "
      "of weights and {:.1f} MB of cache on {}",
      quoted_in(c.architecture), c.name.empty() ? "" : " ", quoted_in(c.name), c.layers, c.hidden, c.heads, c.kv_heads,
      c.head_dim, c.vocabulary, engine_->context(), c.context, static_cast<double>(engine_->weight_bytes()) / 1e6,
      static_cast<double>(engine_->cache_bytes()) / 1e6, devices_text(*engine_));
  if (const std::vector<ModelPart> parts = engine_->parts(); parts.size() > 1)
    for (const ModelPart& part : parts)
      s += fmt::format("\nlayers {} to {} on {}: {:.1f} MB of weights and {:.1f} MB of cache", part.first_layer,
                       part.first_layer + part.layers - 1, part.device.to_string(),
                       static_cast<double>(part.weight_bytes) / 1e6, static_cast<double>(part.cache_bytes) / 1e6);
  if (!engine_->packed_file().empty()) s += "; packed weights from " + engine_->packed_file().string();
  for (const std::string& note : engine_->notes()) s += "\nnote: " + note;
  if (graph) s += "\n" + engine_->graph().to_string();
  return s;
}

}  // namespace weft::llm
