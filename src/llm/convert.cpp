// The difference between the two kinds of files is the difference between the graphs that a family builds for them: names,
// matrices that are transposed, norms around 1 + w, and the order of the rows of queries and keys. So no second
// description of a family is needed, and a family's file alone decides how its tensors are converted.
#include "llm/convert.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/file.hpp"
#include "base/folder_in_making.hpp"
#include "base/quote.hpp"
#include "io/convert_model.hpp"
#include "io/gguf.hpp"
#include "io/safetensors.hpp"
#include "llm/builder.hpp"
#include "llm/config_write.hpp"
#include "llm/convert_folds.hpp"
#include "llm/convert_moves.hpp"
#include "llm/convert_vocabulary.hpp"
#include "llm/mmproj_folder.hpp"
#include "llm/mmproj_write.hpp"
#include "llm/model_folder.hpp"
#include "llm/read_config.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;

ModelGraph build(const ModelConfig& config, const std::function<bool(std::string_view)>& has) {
  const Family& family = family_of(config);
  return family.build({config, family, has});
}

/// The graph of the same model in the other kind of file, which has the same tensors.
ModelGraph graph_elsewhere(const ModelGraph& graph, const ModelConfig& elsewhere) {
  std::set<std::string, std::less<>> keys;
  for (const NameRow& row : names_of(family_of(elsewhere)))
    for (Extent layer = 0; layer < graph.config.layers; ++layer)
      if (graph.find(fmt::format(fmt::runtime(row.name), layer)))
        if (std::string key = key_of(row, elsewhere.from_gguf, layer, 0); !key.empty()) keys.insert(std::move(key));
  return build(elsewhere, [&](std::string_view key) { return keys.contains(key); });
}

ModelConfig config_elsewhere(const GgufConfig& gguf, Extent vocabulary) {
  ModelConfig config = config_from_gguf(gguf.metadata, vocabulary);
  take_factors(config, [&](const char* name) {
    const auto found = gguf.factors.find(name);
    return found == gguf.factors.end() ? std::vector<double>()
                                       : std::vector<double>(found->second.begin(), found->second.end());
  });
  return config;
}

Extent numel_of(const TensorDesc& tensor) {
  Extent numel = 1;
  for (const Dim& dim : tensor.shape) numel *= dim.value;
  return numel;
}

/// Checks that both files describe the same computation.
void require_same(const ModelGraph& from, const ModelGraph& to) {
  std::string problems;
  const auto problem = [&](const std::string& fact) {
    if (std::count(problems.begin(), problems.end(), '\n') < 10) problems += "\n  " + fact;
  };
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b)); };
  const auto text = [](const Attribute& value) {
    return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
  };
  std::unordered_map<std::string, const OpNode*> nodes;
  for (const OpNode& node : to.nodes) nodes.emplace(node.id, &node);
  std::set<std::string, std::less<>> products;
  for (const OpNode& node : from.nodes)
    if (node.op == OpType::matmul) products.insert(node.output);
  for (const OpNode& node : from.nodes) {
    const auto found = nodes.find(node.id);
    if (found == nodes.end() || found->second->op != node.op || found->second->inputs != node.inputs) {
      problem(fmt::format("{} would be lost, or another op", node.id));
      continue;
    }
    for (const auto& [key, value] : node.attributes) {
      if ((key == "pairs" && products.contains(node.inputs[0])) || key == "weight_offset" || key == "log")
        continue;  // are converted
      const Attribute& other = found->second->attributes.at(key);
      const double* number = std::get_if<double>(&value);
      if (number ? !near(*number, std::get<double>(other)) : value != other)
        problem(fmt::format("{}: {} would be {} instead of {}", node.id, key, text(other), text(value)));
    }
    nodes.erase(found);
  }
  for (const auto& [id, node] : nodes) problem(fmt::format("{} would be added", id));
  for (const bool local : {false, true})
    for (const Extent context : {Extent{1}, from.config.context}) {
      const RopeTable a = rope_table(from.config, context, local), b = rope_table(to.config, context, local);
      if (!near(a.magnitude, b.magnitude) ||
          !std::equal(a.frequencies.begin(), a.frequencies.end(), b.frequencies.begin(), b.frequencies.end(), near))
        problem(fmt::format("texts of {} tokens would have other rotary frequencies", context));
    }
  for (const TensorDesc& tensor : from.tensors) {
    if (tensor.keys.empty()) continue;
    const TensorDesc* there = to.find(tensor.name);
    if (!there)
      problem(fmt::format("{} would be lost", tensor.name));
    else if (const Extent a = numel_of(tensor), b = numel_of(*there); a != b)
      problem(fmt::format("{} would have {} elements instead of {}", tensor.name, b, a));
  }
  if (!problems.empty())
    throw FileError(fmt::format("{}: {} cannot express this model of {}:{}", from.config.source,
                                to.config.from_gguf ? "a GGUF file" : "a Hugging Face folder", from.config.architecture,
                                problems));
}

/// What a GGUF file says about the model and its makers: license, languages, size. A folder has no place for it but the
/// metadata of its safetensors.
bool is_about_model(std::string_view key) {
  constexpr std::string_view kOfTheFile[] = {"general.architecture", "general.name", "general.alignment",
                                             "general.file_type", "general.quantization_version"};
  return key.starts_with("general.") &&
         std::find(std::begin(kOfTheFile), std::end(kOfTheFile), key) == std::end(kOfTheFile);
}

io::SafetensorsMetadata about_model(const io::GgufMetadata& metadata) {
  io::GgufMetadata kept(metadata.source());
  for (const auto& [key, value] : metadata.entries())
    if (is_about_model(key)) kept.set(key, value);
  return io::metadata_as_text(kept);
}

void add_about_model(io::GgufMetadata& metadata, const fs::path& folder) {
  const fs::path file = folder / "model.safetensors";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return;
  const io::GgufMetadata found = io::metadata_from_text(io::SafetensorsFile::open(file).metadata(), file.string());
  for (const auto& [key, value] : found.entries())
    if (is_about_model(key)) metadata.set(key, value);
}

/// A model that is read, checked, and about to be written.
struct Conversion {
  Conversion(const io::TensorSource& model, const ConvertOptions& chosen)
      : source(model), options(chosen), names(model), config(read_config(model, names)) {
    if (options.type && *options.type != BlockType::f32 && *options.type != BlockType::f16 &&
        *options.type != BlockType::bf16)
      throw UsageError(
          fmt::format("models are converted to F32, F16 or BF16, not to {}; weft quantize makes that of a "
                      "GGUF file",
                      file_name_of(*options.type)));
    // The tower is written apart, and with it what joins it to the language model.
    sees = config;
    config.reads_images = config.sees_images_whole = false;
    config.image_layers = 0;
    if (!config.from_gguf && config.layer_input > 0 && config.layer_vocabulary < config.vocabulary) {
      // In GGUF files all tables have the same rows. The tokens behind them are those of images and sounds.
      config.table_rows = config.vocabulary;
      config.vocabulary = config.layer_vocabulary;
    }
    from = build(config, [&](std::string_view key) { return names.find(key) != nullptr; });
    check_tensors(from, names);
    // GGUF files store the numbers of activations and the factors elsewhere, so the graph built here leaves them out.
    factors = take_factors_of_parts(config);
    take_xielu(config, source, names);
    from = build(config, [&](std::string_view key) { return names.find(key) != nullptr; });
  }
  void plan(ModelConfig elsewhere) {
    elsewhere.xielu = config.xielu;
    to = graph_elsewhere(from, elsewhere);
    require_same(from, to);
    moves = moves_of(from, to, names, options);
    for (Move& move : moves)
      if (const auto found = factors.find(move.name); found != factors.end()) move.factors = found->second;
    outputs = outputs_of(moves);
    for (const Move& move : moves)
      for (const io::SourceTensor* tensor : move.from) total += tensor->size_bytes();
  }
  void put(const Output& output, const std::function<void(std::span<const std::byte>)>& sink) {
    if (options.progress) options.progress(output.name, done, total);
    done += write_output(output, source, config.rope_dims, sink);
  }

  const io::TensorSource& source;
  const ConvertOptions& options;
  TensorNames names;
  ModelConfig config;
  ModelConfig sees;  ///< with what joins a tower to it
  /// Notes the tensors that are not part of a language model, unless they are written too.
  std::vector<std::string> notes(bool has_tower) const {
    std::vector<std::string> notes = source.notes();
    if (config.table_rows > config.vocabulary)
      notes.push_back(fmt::format("the last {} tokens, which stand for images and sounds, are left behind",
                                  config.table_rows - config.vocabulary));
    for (std::string& note : notes_of_extra_tensors(config, names)) notes.push_back(std::move(note));
    if (has_tower) return notes;
    const auto seeing = std::count_if(source.tensors().begin(), source.tensors().end(), [](const io::SourceTensor& t) {
      return t.name.find("vision") != std::string::npos || t.name.find("multi_modal") != std::string::npos;
    });
    if (seeing > 0) notes.push_back(fmt::format("{} tensors of the vision part are left behind", seeing));
    return notes;
  }

  ModelGraph from, to;
  std::map<std::string, std::vector<RowFactor>> factors;
  std::vector<Move> moves;
  std::vector<Output> outputs;
  std::uint64_t total = 0, done = 0;
};

/// FileError if the folder holds parts of another model, which the new one would be mixed with. Without `with_tokenizer` its
/// tokenizer stays, and a note says so.
void check_folder(const fs::path& folder, const ConvertOptions& options, const TokenizerFiles& tokenizer,
                  std::vector<std::string>& notes) {
  FolderRest rest = rest_of_folder(folder, [&](std::string_view name) {
    return name == "model.safetensors" || tokenizer.files.contains(std::string(name));
  });
  const auto listed = [](const std::vector<std::string>& names) {
    std::vector<std::string> quoted;
    for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 5); ++i) quoted.push_back(quote(names[i], 80));
    const std::size_t more = names.size() - quoted.size();
    return fmt::format("{}{}", fmt::join(quoted, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
  };
  if (options.with_tokenizer)
    rest.weights.insert(rest.weights.end(), rest.tokenizer.begin(), rest.tokenizer.end());
  else if (!rest.tokenizer.empty())
    notes.push_back(fmt::format("the folder keeps its tokenizer: {}", listed(rest.tokenizer)));
  if (!rest.weights.empty())
    throw FileError(
        fmt::format("{}: the folder has files that would be taken for parts of this model: {}; remove "
                    "them, or choose another folder",
                    folder.string(), listed(rest.weights)));
}

/// Of a model in a GGUF file whose mmproj file is named or found. `json` is the config.json of its language model.
std::unique_ptr<detail::SeeingFolder> part_that_sees(const Conversion& c, const Json& json,
                                                     std::vector<std::string>& notes) {
  const io::GgufMetadata& metadata = c.source.gguf()->metadata();
  const auto file = detail::mmproj_of_model(c.source, c.config, c.options.mmproj, notes);
  if (!file) return {};
  if (const std::string token = file->missing_token(metadata); !token.empty()) {
    notes.push_back(fmt::format(
        "the part of the model that sees is left behind: its vocabulary has no token {}, which folders need",
        quote(token)));
    return {};
  }
  return std::make_unique<detail::SeeingFolder>(*file, c.config, metadata, json, c.options);
}

}  // namespace

ModelGraph graph_of_other_kind(const ModelGraph& graph) {
  ModelGraph from = graph;
  from.config.reads_images = from.config.sees_images_whole = false;
  from.config.image_layers = 0;
  const ModelGraph to =
      graph_elsewhere(from, from.config.from_gguf ? config_from_json(config_to_json(from), from.config.source)
                                                  : config_elsewhere(config_to_gguf(from), from.config.vocabulary));
  require_same(from, to);
  return to;
}

Converted convert_to_folder(const io::TensorSource& source, const fs::path& folder, const ConvertOptions& options) {
  Conversion c(source, options);
  Json json = config_to_json(c.from);
  c.plan(config_from_json(json, (folder / "config.json").string()));
  Converted result{0, c.notes(false)};
  TokenizerFiles tokenizer;
  if (options.with_tokenizer) tokenizer = tokenizer_files_of(*source.gguf(), c.config, json);
  check_folder(folder, options, tokenizer, result.notes);
  const std::unique_ptr<detail::SeeingFolder> seeing = part_that_sees(c, json, result.notes);
  if (seeing) json = seeing->config();

  std::vector<io::TensorInfo> infos;
  for (const Output& output : c.outputs)
    infos.push_back({seeing ? seeing->name_of_text(output.name) : output.name, std::string(file_name_of(output.type)),
                     output.shape});
  if (seeing)
    for (const auto& part : seeing->parts())
      infos.push_back({part.name, std::string(file_name_of(part.type)), part.from->shape});
  const std::vector<NumberTensor> numbers = xielu_tensors(c.config);
  for (const NumberTensor& number : numbers) infos.push_back({number.name, "F32", number.shape});
  const BlockType type = c.moves.front().type;  // of the embedding
  const char* dtype = type == BlockType::f16 ? "float16" : type == BlockType::bf16 ? "bfloat16" : "float32";
  json.update({{"dtype", dtype}, {"torch_dtype", dtype}});

  FolderInMaking making(folder);
  io::SafetensorsMetadata metadata = about_model(source.gguf()->metadata());
  metadata["format"] = "pt";
  io::write_safetensors(folder / "model.safetensors", infos, metadata, [&](std::size_t i, const auto& put) {
    const std::size_t first_number = infos.size() - numbers.size();
    if (i < c.outputs.size())
      c.put(c.outputs[i], put);
    else if (i >= first_number)
      put(std::as_bytes(std::span(&numbers[i - first_number].value, 1)));
    else
      seeing->put(seeing->parts()[i - c.outputs.size()], put);
  });
  if (seeing) write_file_atomically(folder / "preprocessor_config.json", seeing->processor().dump(2) + "\n");
  for (const auto& [name, text] : tokenizer.files) write_file_atomically(folder / name, text);
  write_file_atomically(folder / "config.json", json.dump(2) + "\n");
  making.keep();
  result.tensors = infos.size();
  return result;
}

Converted convert_to_gguf(const io::TensorSource& source, const fs::path& file, const ConvertOptions& options) {
  Conversion c(source, options);
  GgufConfig gguf = config_to_gguf(c.from);
  add_about_model(gguf.metadata, source.path());
  c.plan(config_elsewhere(gguf, c.config.vocabulary));
  std::optional<detail::MmprojFile> tower;
  std::string left_behind;
  if (c.sees.reads_images) try {
      tower.emplace(source, c.sees, options);
      if (c.sees.image_layers > 0)
        gguf.metadata.set(gguf.metadata.get<std::string>("general.architecture") + ".n_deepstack_layers",
                          static_cast<std::uint32_t>(c.sees.image_layers));
    } catch (const FileError& error) {
      left_behind = error.what();
    }
  Converted result{0, c.notes(tower.has_value())};
  if (!left_behind.empty()) result.notes.push_back(left_behind);
  if (options.with_tokenizer)
    for (std::string& note : add_tokenizer(gguf.metadata, source.path(), c.config)) result.notes.push_back(note);
  const BlockType type = c.moves.front().type;
  gguf.metadata.set("general.file_type", std::uint32_t{type == BlockType::f16    ? 1u
                                                       : type == BlockType::bf16 ? 32u
                                                                                 : 0u});

  std::vector<io::GgufTensorInfo> infos;
  for (const auto& [name, values] : gguf.factors)
    infos.push_back({name, {static_cast<Extent>(values.size())}, BlockType::f32});
  for (const auto& [name, shape] : gguf.zeros)
    infos.push_back({name, shape, shape.rank() > 1 ? BlockType::f16 : BlockType::f32});
  for (const Output& output : c.outputs) infos.push_back({output.name, output.shape, output.type});
  const std::size_t count = infos.size();
  io::GgufWriter writer(file, gguf.metadata, std::move(infos));
  for (const auto& [name, values] : gguf.factors) writer.write(std::as_bytes(std::span(values)));
  for (const auto& [name, shape] : gguf.zeros)
    writer.write(std::vector<std::byte>(static_cast<std::size_t>(shape.numel()) * (shape.rank() > 1 ? 2 : 4)));
  for (const Output& output : c.outputs) c.put(output, [&](std::span<const std::byte> bytes) { writer.write(bytes); });
  writer.commit();
  result.tensors = count;
  if (tower) {
    const fs::path beside = file.parent_path() / ("mmproj-" + file.filename().string());
    result.notes.push_back(fmt::format("the part of the model that sees images, {} tensors, is in {}",
                                       tower->write(beside, options), beside.string()));
    for (const std::string& note : tower->notes()) result.notes.push_back(note);
  }
  return result;
}

}  // namespace weft::llm
