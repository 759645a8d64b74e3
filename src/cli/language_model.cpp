#include "cli/language_model.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdio>
#include <fstream>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "base/threads.hpp"
#include "base/utf8.hpp"
#include "cli/console.hpp"
#include "cli/fetch_model.hpp"
#include "cli/output.hpp"
#include "text/chat_template.hpp"
#include "weft/error.hpp"
#include "weft/llm_models.hpp"
#include "weft/parallel.hpp"

namespace weft::cli {

void add_model_options(CLI::App& app, ModelOptions& o, const std::string& what) {
  app.add_option("model", o.path, what + kOrName)->required();
  app.add_option("--device", o.device, kDevicesHelp)->capture_default_str();
  add_division_options(app, o.split, o.layers);
  app.add_option("--context", o.context, "positions kept; 0: what the model was trained for, as far as memory allows")
      ->capture_default_str();
  // Its twin is WEFT_CACHE_TYPE: WEFT_CACHE is the folder where the scripts keep what they fetch.
  app.add_option("--cache-type,--cache", o.cache, "type of cached keys and values: f32, f16 or q8")
      ->capture_default_str();
  app.add_flag("--whole-cache", o.whole_cache,
               "layers with windows keep all positions too, which takes more memory but saves reading again after a "
               "long step back");
  app.add_option("--threads", o.threads, "CPU threads; 0: one for each core")->capture_default_str();
  app.add_option("--device-memory", o.device_memory,
                 "memory for weights and cache together, such as 6G or 500M; without --context, as many positions are "
                 "kept as fit. Of several devices: on each GPU; a CPU beside them takes the layers that do not fit");
  add_adapter_option(app, o.adapters);
  app.add_flag("--merge-adapters", o.merges_adapters,
               "add adapters to the matrices while they are read: tokens then cost what they cost without, but "
               "matrices in blocks "
               "become F16");
  app.add_flag("--exact", o.exact, "keep activations in f32 in products with quantised weights");
  app.add_flag("--no-packed-file", o.no_packed_file,
               "pack weights for the CPU at each start, and keep no packed copy in the cache folder");
}

void add_adapter_option(CLI::App& app, std::vector<std::string>& adapters) {
  app.add_option("--adapter", adapters,
                 "low-rank changes of the model (LoRA): a folder of weft tune or PEFT, or a GGUF file; PATH=SCALE "
                 "multiplies them; may be given several times")
      ->allow_extra_args(false);
}

std::vector<llm::AdapterUse> adapters_of(const std::vector<std::string>& values) {
  std::vector<llm::AdapterUse> uses;
  std::error_code ignored;
  for (const std::string& value : values) {
    const std::size_t at = value.rfind('=');
    if (at == std::string::npos || std::filesystem::exists(value, ignored)) {
      uses.push_back({value});
      continue;
    }
    double scale = 0;
    const char *begin = value.data() + at + 1, *end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(begin, end, scale);
    if (error != std::errc() || stop != end || at == 0)
      throw UsageError(fmt::format("--adapter {}: write PATH or PATH=SCALE, as in talks=0.5", quote(value, 80)));
    uses.push_back({value.substr(0, at), scale});
  }
  return uses;
}

void add_image_options(CLI::App& app, ModelOptions& o) {
  o.mmproj.clear();
  app.add_option(
      "--mmproj", o.mmproj,
      "of a GGUF file: the file with the part of the model that sees images; by default one beside the model "
      "whose name has mmproj in it, if it fits; none: no images");
}

void add_division_options(CLI::App& app, std::vector<double>& split, std::vector<std::int64_t>& layers) {
  app.add_option("--split", split,
                 "shares of several devices in the bytes of weights and cache, as in 3,1; by default they are equal")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option(
         "--layers", layers,
         "number of layers of each device, as in 20,12; the last may be left out, and that device takes the rest")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void set_devices(llm::LoadOptions& load, const std::string& devices, const std::vector<double>& split,
                 const std::vector<std::int64_t>& layers) {
  load.devices = parallel::parse_devices(devices);
  load.device = load.devices[0];
  load.split = split;
  load.layers.assign(layers.begin(), layers.end());
}

Device first_device(const std::string& devices) { return parallel::parse_devices(devices)[0]; }

void add_draw_options(CLI::App& app, DrawOptions& o) {
  llm::GenerateOptions& g = o.generate;
  llm::Sampling& s = g.sampling;
  app.add_option("--max-tokens", g.max_tokens, "largest number of tokens to write")->capture_default_str();
  app.add_option("--temperature", s.temperature, "below 1: safer, above 1: bolder; 0: always the likeliest token")
      ->capture_default_str();
  app.add_option("--top-k", s.top_k, "draw from the k likeliest tokens; 0: from all")->capture_default_str();
  app.add_option("--top-p", s.top_p, "draw from the likeliest tokens that together reach this probability")
      ->capture_default_str();
  app.add_option("--min-p", s.min_p, "draw from tokens at least this fraction as likely as the likeliest")
      ->capture_default_str();
  app.add_option("--typical", s.typical, "draw from the most typical tokens that together reach this probability")
      ->capture_default_str();
  app.add_option("--repetition-penalty", s.repetition_penalty,
                 "above 1: tokens in the penalty window become less likely")
      ->capture_default_str();
  app.add_option("--frequency-penalty", s.frequency_penalty,
                 "subtracted from the logit of a token for each time that it occurs in the penalty window")
      ->capture_default_str();
  app.add_option("--presence-penalty", s.presence_penalty,
                 "subtracted from the logits of all tokens in the penalty window")
      ->capture_default_str();
  app.add_option("--penalty-window", s.penalty_window, "size of the penalty window: the last tokens")
      ->capture_default_str();
  app.add_option("--stop", g.stop, "text that ends the writing; may be given several times")->allow_extra_args(false);
  app.add_option("--draft", g.draft, "tokens to guess from the text so far and check together; the text stays the same")
      ->capture_default_str();
  app.add_option("--logit-bias", o.biases,
                 "ID=VALUE: added to the logit of a token, -inf forbids it; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--schema", o.schema, "a JSON Schema in a file: the text is JSON that it accepts");
  app.add_flag("--lenient-schema", o.lenient_schema, "leave out what a grammar cannot say of --schema");
  app.add_option("--grammar", o.grammar, "a grammar in GBNF in a file: the text fits it");
  app.add_option("--seed", o.seed, "the same seed writes the same text; -1: another each time")->capture_default_str();
}

namespace {

std::pair<std::int32_t, double> parse_bias(std::string_view text) {
  const std::size_t at = text.find('=');
  const std::string_view id = text.substr(0, at), number = at == std::string_view::npos ? "" : text.substr(at + 1);
  std::pair<std::int32_t, double> bias{};
  const auto whole = [](std::string_view part, std::from_chars_result read) {
    return !part.empty() && read.ec == std::errc() && read.ptr == part.data() + part.size();
  };
  if (!whole(id, std::from_chars(id.data(), id.data() + id.size(), bias.first)) ||
      !whole(number, std::from_chars(number.data(), number.data() + number.size(), bias.second)))
    throw UsageError(fmt::format("--logit-bias {}: write ID=VALUE, as in 42=-5; weft tokenize tells the ids", text));
  return bias;
}

}  // namespace

llm::GenerateOptions generate_options(const DrawOptions& options) {
  llm::GenerateOptions g = options.generate;
  if (options.seed < -1) throw UsageError(fmt::format("--seed {}: give 0 or more, or -1", options.seed));
  if (options.seed >= 0) g.sampling.seed = static_cast<std::uint64_t>(options.seed);
  for (const std::string& text : options.biases) g.sampling.logit_bias.push_back(parse_bias(text));
  if (!options.grammar.empty() && !options.schema.empty())
    throw UsageError("--grammar and --schema both say what the text must be; give one of them");
  if (options.lenient_schema && options.schema.empty()) throw UsageError("--lenient-schema needs --schema FILE");
  constexpr std::uint64_t kGrammarBytesMax = std::uint64_t{1} << 20;
  if (!options.grammar.empty())
    g.grammar = llm::Grammar::parse(read_text_file(options.grammar, kGrammarBytesMax), options.grammar.string());
  if (!options.schema.empty())
    g.grammar = llm::Grammar::parse_json_schema(read_text_file(options.schema, kGrammarBytesMax),
                                                {.lenient = options.lenient_schema}, options.schema.string());
  return g;
}

bool is_language_model(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return std::filesystem::exists(path / "config.json", ignored) &&
           std::filesystem::exists(path / "tokenizer.json", ignored);
  char magic[4] = {};
  if (!std::filesystem::is_regular_file(path, ignored)) return false;  // opening a pipe would wait for its writer
  if (path.extension() == ".gguf") return true;                        // the reader of such files reports the errors
  std::ifstream(path, std::ios::binary).read(magic, 4);
  return std::string_view(magic, 4) == "GGUF";
}

void require_utf8_text(std::string_view text, std::string_view what) {
  if (const auto at = find_invalid_utf8(text))
    throw UsageError(fmt::format("{}: byte {} is not UTF-8; convert the text, as with iconv", what, *at));
}

std::uint64_t parse_bytes(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  constexpr std::string_view kUnits = "kmgt";
  double factor = 1;
  bool good = error == std::errc() && value > 0 && end - stop <= 1;
  if (good && stop != end) {
    const std::size_t unit = kUnits.find(static_cast<char>(std::tolower(static_cast<unsigned char>(*stop))));
    good = unit != std::string_view::npos;
    for (std::size_t i = 0; good && i <= unit; ++i) factor *= 1024;
  }
  if (!good || !(value * factor < 0x1p62))
    throw UsageError(fmt::format("--device-memory {}: write a size such as 6G, 500M or 4096", quote(text)));
  return static_cast<std::uint64_t>(value * factor);
}

void use_threads(const ModelOptions& o) {
  if (o.threads < 0 || o.threads > 1024)
    throw UsageError(fmt::format("--threads {}: give a number from 1 to 1024, or 0 for one for each core", o.threads));
  if (o.threads > 0) set_thread_count(static_cast<int>(o.threads));
}

CacheType parse_cache_type(const std::string& name) {
  if (name == "f32") return CacheType::f32;
  if (name == "f16") return CacheType::f16;
  if (name == "q8") return CacheType::q8;
  throw UsageError(fmt::format("--cache {}: give f32, f16 or q8", quote(name, 40)));
}

std::filesystem::path model_path(const std::filesystem::path& given) {
  std::error_code ignored;
  if (hub::is_model_name(given.string())) return fetched_path(given.string());
  if (std::filesystem::exists(given, ignored)) return given;
  if (const auto found = llm::find_model(given.string())) return *found;
  refuse_bare_name(given);
  return given;
}

llm::Model load_language_model(const ModelOptions& o, int sequences) {
  use_threads(o);
  llm::LoadOptions load{
      .context = o.context,
      .sequences = sequences,
      .whole_cache = o.whole_cache,
      .exact = o.exact,
      .keep_packed = !o.no_packed_file,
      .device_memory = o.device_memory.empty() ? 0 : parse_bytes(o.device_memory),
      .chat_template = o.chat_template.empty()
                           ? std::string()
                           : read_text_file(o.chat_template, text::TemplateLimits().max_source_bytes)};
  set_devices(load, o.device, o.split, o.layers);
  load.cache = parse_cache_type(o.cache);
  load.mmproj = o.mmproj;
  load.adapters = adapters_of(o.adapters);
  load.merge_adapters = o.merges_adapters;
  Console console(stderr);
  if (console.is_terminal())
    load.progress = [&](std::uint64_t done, std::uint64_t total) {
      constexpr std::size_t kColumns = 30;
      const std::size_t filled = total ? kColumns * done / total : kColumns;
      console.status(fmt::format("loading [{:<30}] {:.0f} of {:.0f} MB", std::string(filled, '='),
                                 static_cast<double>(done) / 1e6, static_cast<double>(total) / 1e6),
                     done == total);
    };
  llm::Model model = llm::load(model_path(o.path), load);
  if (console.is_terminal())
    console.print(model.describe() + "\n");
  else
    for (const std::string& note : model.notes())
      if (note.find("beside the model") != std::string::npos) put_message("note: " + note);
  if (model.context() > model.trained_context())
    put_message(
        fmt::format("note: a context of {}, but the model was trained for {} positions: it writes poorly beyond them; "
                    "a smaller --context takes less memory",
                    model.context(), model.trained_context()));
  return model;
}

std::string speed_text(const llm::Result& r) {
  const auto count = static_cast<double>(r.tokens.size());
  std::string text = fmt::format("{} tokens of prompt", r.prompt_tokens);
  if (r.reused_tokens > 0) text += fmt::format(" ({} in the cache)", r.reused_tokens);
  text += fmt::format(" in {:.2f} s, {} tokens in {:.2f} s ({:.1f} a second)", r.prompt_seconds, r.tokens.size(),
                      r.seconds, r.seconds > 0 ? count / r.seconds : 0.0);
  if (r.drafted_tokens > 0) text += fmt::format(", {} of {} guesses right", r.accepted_tokens, r.drafted_tokens);
  return text + fmt::format("; ended by {}", llm::name_of(r.finish));
}

}  // namespace weft::cli
