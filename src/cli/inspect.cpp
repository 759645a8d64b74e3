// weft inspect
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "io/quantised_folder.hpp"
#include "io/tensor_source.hpp"
#include "llm/families.hpp"
#include "llm/guess.hpp"
#include "llm/read_config.hpp"
#include "metatensor/source.hpp"
#include "weft/error.hpp"
#include "weft/llm_fit.hpp"
#include "weft/metatensor.hpp"
#include "weft/onnx.hpp"
#include "weft/train/checkpoint.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

struct InspectRequest {
  fs::path path;
  bool json = false, full = false, check = false, graph = false, validate = false, fit = false, guess = false;
  llm::ModelHints hints;
  std::string device = "auto", cache = "f32", device_memory;
  std::vector<double> split;
  std::vector<std::int64_t> layers;
  Extent context = 0;
  int sequences = 1;
};

constexpr std::size_t kShownElements = 8;  // of a long array
constexpr std::size_t kShownBytes = 60;    // of a long text

/// Everything that the command prints, before layout. Metadata is a list of key, type (of GGUF) and value.
struct Facts {
  struct Value {
    std::string key, type;
    OrderedJson json;   // arrays are cut
    std::string shown;  // on a line
  };
  std::vector<std::pair<std::string, OrderedJson>> head;
  std::vector<Value> metadata;
};

Facts::Value described(const io::GgufMetadata::Entry& entry, bool full) {
  Facts::Value result{entry.key, io::describe_type(entry.value), {}, {}};
  std::visit(
      [&](const auto& value) {
        using V = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<V, io::GgufArray>) {
          const std::size_t count = io::size_of(value), shown = full ? count : std::min(count, kShownElements);
          OrderedJson elements = OrderedJson::array();
          std::visit(
              [&](const auto& list) {
                for (std::size_t i = 0; i < shown; ++i) {
                  const typename std::remove_cvref_t<decltype(list)>::value_type element = list[i];
                  elements.push_back(element);
                  if (i < kShownElements) result.shown += i ? ", " : "";
                  if constexpr (std::is_same_v<std::remove_cvref_t<decltype(element)>, std::string>) {
                    if (i < kShownElements) result.shown += quote(element, 20);
                  } else if (i < kShownElements) {
                    result.shown += fmt::format("{}", element);
                  }
                }
              },
              value);
          if (count > std::min(shown, kShownElements)) result.shown += ", ...";
          result.json = OrderedJson{{"type", std::string(name_of(io::element_type_of(value)))}, {"count", count}};
          result.json[shown == count ? "elements" : "first"] = std::move(elements);
        } else if constexpr (std::is_same_v<V, std::string>) {
          result.json = value;
          result.shown = quote(value, full ? value.size() : kShownBytes);
        } else {
          result.json = value;
          result.shown = fmt::format("{}", value);
        }
      },
      entry.value);
  return result;
}

/// What a Hugging Face folder's config.json says of the model.
void add_config(const fs::path& folder, Facts& facts) {
  const fs::path path = folder / "config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const Json config = read_json_file(path, {.max_bytes = std::uint64_t{8} << 20, .max_values = 200'000});
  if (!config.is_object()) return;
  for (const auto& [key, value] : config.items()) {
    const std::string text = json_text(value);
    std::size_t shown = std::min(text.size(), kShownBytes);
    while (shown < text.size() && (static_cast<unsigned char>(text[shown]) & 0xC0) == 0x80) --shown;
    facts.metadata.push_back(
        {key, std::string(value.type_name()), value, shown < text.size() ? text.substr(0, shown) + "..." : text});
  }
}

/// What a metatensor file holds beside tensors.
void add_schema(const fs::path& path, Facts& facts) {
  const metatensor::File file = metatensor::File::open(path);
  for (const std::string& name : file.paths()) {
    const metatensor::Node& node = file.at(name);
    if (node.kind == metatensor::Kind::flat) continue;
    const bool is_blob = node.kind == metatensor::Kind::blob;
    facts.metadata.push_back({name, is_blob ? "blob" : "records",
                              OrderedJson::parse(metatensor::to_value(node).to_json()),
                              is_blob ? fmt::format("{} entries, {} bytes", node.count, file.range(name).size())
                                      : fmt::format("{} of {} bytes", node.count, node.layout->stride())});
  }
}

Facts facts_of(const io::TensorSource& model, bool full) {
  Facts facts;
  if (const io::GgufFile* gguf = model.gguf()) {
    facts.head = {{"format", fmt::format("GGUF version {}", gguf->version())},
                  {"alignment", gguf->alignment()},
                  {"parts", gguf->part_count()},
                  {"file_bytes", gguf->file_bytes()}};
    for (const auto& entry : gguf->metadata().entries()) facts.metadata.push_back(described(entry, full));
  } else if (model.kind() == io::SourceKind::folder) {
    facts.head = {{"format", "Hugging Face folder"}};
    add_config(model.path(), facts);
  } else {
    const auto& metadata = model.safetensors_metadata();
    const auto format = metadata.find("format");
    const bool checkpoint = format != metadata.end() && format->second == "weft-checkpoint-1";
    facts.head = {{"format", model.kind() == io::SourceKind::metatensor ? "metatensor"
                             : checkpoint                               ? "Weft checkpoint (safetensors)"
                                                                        : "safetensors"},
                  {"file_bytes", fs::file_size(model.path())}};
    if (model.kind() == io::SourceKind::metatensor) add_schema(model.path(), facts);
    for (const auto& [key, value] : metadata)
      facts.metadata.push_back({key, "", value, quote(value, full ? value.size() : kShownBytes)});
  }
  return facts;
}

struct Total {
  std::size_t tensors = 0;
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;
  double bits() const { return elements ? 8.0 * static_cast<double>(bytes) / static_cast<double>(elements) : 0; }
  void add(const io::SourceTensor& tensor) {
    ++tensors;
    elements += tensor.shape.numel();
    bytes += tensor.data.size();
  }
};

std::string text_of(const io::TensorSource& model, const Facts& facts, const std::map<std::string, Total>& by_type,
                    const Total& total) {
  std::string out;
  const auto put = [&]<class... T>(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<T>(values)...);
  };
  put("{}\n", quote(model.path().string(), 4096));
  for (const auto& [key, value] : facts.head)
    put("  {:<12}  {}\n", key, value.is_string() ? value.get<std::string>() : grouped(value.get<std::int64_t>()));
  std::size_t width = 0, type_width = 0;
  for (const Facts::Value& value : facts.metadata) {
    width = std::max(width, std::min<std::size_t>(value.key.size(), 44));
    type_width = std::max(type_width, value.type.size());
  }
  if (!facts.metadata.empty()) put("\nMetadata\n");
  for (const Facts::Value& value : facts.metadata) {
    const std::string key = quote(value.key);
    put("  {:<{}}  {:<{}}  {}\n", key.substr(1, key.size() - 2), width, value.type, type_width, value.shown);
  }
  width = 4;
  std::size_t shape_width = 5;
  for (const io::SourceTensor& tensor : model.tensors()) {
    width = std::max(width, std::min<std::size_t>(tensor.name.size(), 64));
    shape_width = std::max(shape_width, tensor.shape.to_string().size());
  }
  put("\nTensors\n");
  for (const io::SourceTensor& tensor : model.tensors()) {
    const std::string name = quote(tensor.name);
    put("  {:<{}}  {:<{}}  {:<7}  {:>15}\n", name.substr(1, name.size() - 2), width, tensor.shape.to_string(),
        shape_width, tensor.type_name, grouped(static_cast<std::int64_t>(tensor.data.size())));
  }
  put("\nTotals\n");
  const auto row = [&](std::string_view name, const Total& t) {
    put("  {:<7}  {:>6} tensors  {:>15} elements  {:>15} bytes  {:6.2f} bits an element\n", name, t.tensors,
        grouped(t.elements), grouped(static_cast<std::int64_t>(t.bytes)), t.bits());
  };
  for (const auto& [type, t] : by_type) row(type, t);
  if (by_type.size() != 1) row("all", total);
  return out;
}

std::string json_of(const io::TensorSource& model, const Facts& facts, const std::map<std::string, Total>& by_type,
                    const Total& total) {
  OrderedJson json{{"path", model.path().string()}};
  for (const auto& [key, value] : facts.head) json[key] = value;
  json["metadata"] = OrderedJson::object();
  for (const Facts::Value& value : facts.metadata) json["metadata"][value.key] = value.json;
  json["tensors"] = OrderedJson::array();
  for (const io::SourceTensor& tensor : model.tensors())
    json["tensors"].push_back({{"name", tensor.name},
                               {"shape", tensor.shape.vector()},
                               {"type", tensor.type_name},
                               {"bytes", tensor.data.size()}});
  const auto described = [](const Total& t) {
    return OrderedJson{{"tensors", t.tensors}, {"elements", t.elements}, {"bytes", t.bytes}, {"bits", t.bits()}};
  };
  json["totals"] = described(total);
  json["totals"]["by_type"] = OrderedJson::object();
  for (const auto& [type, t] : by_type) json["totals"]["by_type"][type] = described(t);
  return json_text(json, 2) + "\n";
}

/// A run of `weft train` is its best checkpoint, as for `weft generate`.
fs::path checkpoint_of_run(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored) && !fs::exists(path / "model.safetensors", ignored) &&
      !fs::exists(path / "model.safetensors.index.json", ignored))
    for (const char* name : {train::kBestCheckpoint, train::kLastCheckpoint})
      if (fs::exists(path / name, ignored)) return path / name;
  return path;
}

/// The graph of a language model, node by node. Its tensors are checked against the graph.
int print_graph(const io::TensorSource& model) {
  const llm::TensorNames names(model);
  const llm::ModelConfig config = llm::read_config(model, names);
  const llm::Family& family = llm::family_of(config);
  const llm::ModelGraph graph =
      family.build({config, family, [&](std::string_view key) { return names.find(key) != nullptr; }});
  llm::check_tensors(graph, names);
  put_foreign(graph.to_string());
  return kOk;
}

/// A config.json for a model that has none.
int print_guess(const InspectRequest& request) {
  if (request.json || request.full || request.check || request.graph || request.fit)
    throw UsageError("weft inspect: --guess stands alone; it prints JSON");
  const io::TensorSource source = io::TensorSource::open(request.path);
  if (source.gguf()) throw UsageError("weft inspect: --guess is for safetensors files; a GGUF file says what it is");
  if (const auto encoder = llm::guessed_encoder_config(source, request.hints)) {
    put_foreign(encoder->dump(2) + "\n");
    return kOk;
  }
  const llm::TensorNames names(source);
  const Json config = llm::guessed_config(names, request.hints);
  llm::config_from_json(config, request.path.string());
  put_foreign(config.dump(2) + "\n");
  return kOk;
}

/// What the model would take on a device, before it is loaded.
int print_fit(const InspectRequest& request) {
  if (request.full || request.check || request.graph)
    throw UsageError("weft inspect: --fit can be combined with --json only");
  llm::LoadOptions load{.context = request.context,
                        .sequences = request.sequences,
                        .cache = parse_cache_type(request.cache),
                        .device_memory = request.device_memory.empty() ? 0 : parse_bytes(request.device_memory)};
  set_devices(load, request.device, request.split, request.layers);
  const llm::FitReport report = llm::fit(request.path, load);
  if (!request.json) {
    put_foreign(report.to_string());
    return kOk;
  }
  OrderedJson json{{"path", request.path.string()},
                   {"device", report.device.to_string()},
                   {"context", report.context},
                   {"sequences", report.sequences},
                   {"cache_type", request.cache},
                   {"weights", report.need.weights},
                   {"tower", report.tower},
                   {"cache", report.need.cache},
                   {"states", report.need.states},
                   {"passes", report.need.passes},
                   {"total", report.need.total()},
                   {"available", report.available ? OrderedJson(*report.available) : OrderedJson(nullptr)},
                   {"fits", report.fits},
                   {"largest",
                    {{"name", report.largest.name},
                     {"bytes", report.largest.bytes},
                     {"limit", report.largest.limit > 0 ? OrderedJson(report.largest.limit) : OrderedJson(nullptr)}}},
                   {"parts", OrderedJson::array()},
                   {"changes", OrderedJson::array()}};
  for (const llm::FitPart& each : report.parts)
    json["parts"].push_back({{"device", each.device.to_string()},
                             {"first_layer", each.first_layer},
                             {"layers", each.layers},
                             {"weights", each.need.weights},
                             {"cache", each.need.cache},
                             {"states", each.need.states},
                             {"passes", each.need.passes},
                             {"total", each.need.total()},
                             {"available", each.available ? OrderedJson(*each.available) : OrderedJson(nullptr)},
                             {"fits", each.fits}});
  for (const llm::FitChange& each : report.changes)
    json["changes"].push_back({{"change", each.change}, {"bytes", each.bytes}, {"fits", each.fits}});
  put_foreign(json_text(json, 2) + "\n");
  return kOk;
}

/// All broken rules of a safetensors or metatensor file.
int validate(const InspectRequest& request) {
  if (request.full || request.check || request.graph)
    throw UsageError("weft inspect: --validate can be combined with --json only");
  const std::vector<FormatViolation> violations = metatensor::validate(request.path);
  if (request.json) {
    OrderedJson list = OrderedJson::array();
    for (const FormatViolation& each : violations)
      list.push_back({{"code", each.code}, {"byte", each.byte}, {"name", each.name}, {"message", each.message}});
    put_foreign(json_text({{"path", request.path.string()}, {"violations", std::move(list)}}, 2) + "\n");
  } else {
    std::string text;
    for (const FormatViolation& each : violations)
      text += fmt::format("{:<22}  byte {:<12}  {}\n", each.code, each.byte, each.message);
    put_foreign(violations.empty() ? "no rule of the format is broken\n" : text);
  }
  return violations.empty() ? kOk : kFile;
}

int inspect(InspectRequest request) {
  request.path = model_path(request.path);
  if (request.validate) return validate(request);
  if (request.guess) return print_guess(request);
  if (request.fit) return print_fit(request);
  if (request.path.extension() == ".onnx") {
    if (request.json || request.graph || request.check)
      throw UsageError("weft inspect: --json, --graph and --check are for files of weights; leave them out");
    put_foreign(onnx::load(request.path, kCpu).describe());
    return kOk;
  }
  const io::TensorSource model = metatensor::open_source(checkpoint_of_run(request.path));
  if (request.graph && (request.json || request.full || request.check))
    throw UsageError("weft inspect: --graph cannot be combined with --json, --full or --check");
  if (request.graph) return print_graph(io::with_quantised_layers(model));
  if (request.check)
    for (const io::SourceTensor& tensor : model.tensors())
      if (tensor.type) model.require_finite(tensor);
  Facts facts = facts_of(model, request.full);
  if (request.check) facts.head.emplace_back("checked", "every value or scale is finite");
  std::map<std::string, Total> by_type;
  Total total;
  for (const io::SourceTensor& tensor : model.tensors()) {
    by_type[tensor.type_name].add(tensor);
    total.add(tensor);
  }
  put_foreign((request.json ? json_of : text_of)(model, facts, by_type, total));
  return kOk;
}

}  // namespace

void set_up_inspect(CLI::App& app, Action& action) {
  auto request = std::make_shared<InspectRequest>();
  InspectRequest& r = *request;
  app.add_option(
         "model", r.path,
         std::string(
             "a GGUF file (any part of a split one), a safetensors or metatensor file, a Hugging Face folder, a "
             "model of ONNX, or a "
             "checkpoint or run of weft train") +
             kOrName)
      ->required();
  app.add_flag("--json", r.json, "for machines");
  app.add_flag("--full", r.full, "print long arrays and texts of the metadata in full");
  app.add_flag("--check", r.check, "read the data and refuse values or scales that are NaN or infinite");
  app.add_flag("--validate", r.validate,
               "list every broken rule of a safetensors or metatensor file, with its code and byte");
  app.add_flag("--graph", r.graph,
               "print what a language model computes, node by node, once its configuration and tensors are checked");
  auto* guess =
      app.add_flag("--guess", r.guess,
                   "print a config.json for safetensors of a language model that has none, from names and shapes");
  app.add_option("--architecture", r.hints.architecture, "with --guess: the model_type")->needs(guess);
  app.add_option("--heads", r.hints.heads, "with --guess: heads of queries")->needs(guess);
  app.add_option("--experts-per-token", r.hints.experts_per_token, "with --guess: experts that a token uses")
      ->needs(guess);
  app.add_option("--groups", r.hints.groups, "with --guess: groups of Mamba-2")->needs(guess);
  app.add_option("--rope-base", r.hints.rope_base, "with --guess: the base of rotary positions")->needs(guess);
  app.add_option("--trained-context", r.hints.context, "with --guess: positions that the model was trained with")
      ->needs(guess);
  auto* fit = app.add_flag("--fit", r.fit,
                           "what a language model would take in memory, whether it fits, and what would make it fit");
  app.add_option("--device", r.device, std::string("with --fit: ") + kDevicesHelp)->needs(fit);
  add_division_options(app, r.split, r.layers);
  for (const char* name : {"--split", "--layers"}) app.get_option(name)->needs(fit);
  app.add_option("--context", r.context, "with --fit: positions of a sequence; by default the model's own")->needs(fit);
  app.add_option("--sequences", r.sequences, "with --fit: sequences side by side")->needs(fit);
  app.add_option("--cache", r.cache, "with --fit: f32, f16 or q8")->needs(fit);
  app.add_option("--device-memory", r.device_memory,
                 "with --fit: what there is, such as 6G; by default what the host has left")
      ->needs(fit);
  app.callback([&action, request] { action = [request] { return inspect(*request); }; });
}

}  // namespace weft::cli
