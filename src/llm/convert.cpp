// The difference between the two kinds of files is the difference between the graphs that a family builds for them: names,
// matrices that are transposed, norms around 1 + w, and the order of the rows of queries and keys. So no second
// description of a family is needed, and a family's file alone decides how its tensors are converted.
#include "llm/convert.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "io/convert_model.hpp"
#include "io/gguf.hpp"
#include "io/safetensors.hpp"
#include "llm/builder.hpp"
#include "llm/config_write.hpp"
#include "llm/convert_values.hpp"
#include "llm/convert_vocabulary.hpp"
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
        keys.insert(key_of(row, elsewhere.from_gguf, layer, 0));
  return build(elsewhere, [&](std::string_view key) { return keys.contains(key); });
}

/// How a kind of file writes a constant.
struct Layout {
  double offset = 0;  // is added when the model runs
  Extent heads = 0;   // of rows that turn with the position
  bool neighbours = false;
};

std::unordered_map<std::string, Layout> layouts_of(const ModelGraph& graph) {
  std::unordered_map<std::string, const OpNode*> makers;
  std::unordered_map<std::string, Layout> layouts;
  for (const OpNode& node : graph.nodes) {
    makers[node.output] = &node;
    if (node.op == OpType::rms_norm) layouts[node.inputs[1]].offset = node.real("weight_offset");
    if (node.op != OpType::rope) continue;
    const OpNode& maker = *makers.at(node.inputs[0]);
    const bool neighbours = std::get<std::string>(node.attributes.at("pairs")) == "neighbours";
    if (maker.op != OpType::matmul) {
      if (neighbours) throw InternalError(fmt::format("llm: {} rotates a tensor that no product makes", node.id));
      continue;
    }
    for (std::size_t i = 1; i < maker.inputs.size(); ++i) {
      layouts[maker.inputs[i]].heads = node.integer("heads");
      layouts[maker.inputs[i]].neighbours = neighbours;
    }
  }
  return layouts;
}

/// A constant during its conversion.
struct Move {
  std::vector<const io::SourceTensor*> from;
  std::vector<std::string> to;
  Shape shape;  // as the graph has it; of the first of several axes, the experts
  bool from_transposed = false, to_transposed = false;
  Layout from_layout, to_layout;
  BlockType type = BlockType::f32;

  bool turns_rows() const { return from_layout.heads > 0 && from_layout.neighbours != to_layout.neighbours; }
};

BlockType type_of(const Move& move, const ConvertOptions& options, bool to_gguf) {
  const auto type = move.from[0]->type;
  if (to_gguf && move.shape.rank() == 1) return BlockType::f32;
  if (options.type) return *options.type;
  return type == BlockType::f16 || type == BlockType::bf16 ? *type : BlockType::f32;
}

std::vector<Move> moves_of(const ModelGraph& from, const ModelGraph& to, const TensorNames& names,
                           const ConvertOptions& options) {
  const auto from_layouts = layouts_of(from), to_layouts = layouts_of(to);
  const auto layout = [](const auto& layouts, const std::string& name) {
    const auto found = layouts.find(name);
    return found == layouts.end() ? Layout{} : found->second;
  };
  std::vector<Move> moves;
  for (const TensorDesc& target : to.tensors) {
    if (target.keys.empty()) continue;
    const TensorDesc& origin = from.at(target.name);
    Move move;
    for (const std::string& key : origin.keys) move.from.push_back(names.find(key));
    move.to = target.keys;
    for (const Dim& dim : target.shape) move.shape.push_back(dim.value);
    move.from_transposed = origin.transposed;
    move.to_transposed = target.transposed;
    move.from_layout = layout(from_layouts, origin.name);
    move.to_layout = layout(to_layouts, target.name);
    move.type = type_of(move, options, to.config.from_gguf);
    moves.push_back(std::move(move));
  }
  return moves;
}

Shape shape_of_part(const Move& move) {
  Shape shape = move.shape;
  if (move.to.size() > 1) shape = Shape(std::vector<Extent>(shape.begin() + 1, shape.end()));
  if (move.to_transposed) std::swap(shape[0], shape[1]);
  return shape;
}

std::vector<float> transposed(const std::vector<float>& values, std::size_t rows, std::size_t columns) {
  std::vector<float> turned(values.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) turned[c * rows + r] = values[r * columns + c];
  return turned;
}

/// The values of one of the tensors that are written.
std::vector<float> values_of(const io::TensorSource& source, const Move& move, std::size_t part, Extent rope_dims) {
  std::vector<float> values;
  const auto append = [&](const io::SourceTensor& given) {
    const io::LoadedTensor whole = io::TensorSource::loaded(given);
    source.require_finite(whole.tensor);
    const std::size_t before = values.size();
    values.resize(before + static_cast<std::size_t>(given.shape.numel()));
    source.read_f32(whole.tensor, std::span(values).subspan(before));
  };
  if (move.from.size() == 1 && move.to.size() > 1) {
    io::SourceTensor slice = *move.from[0];
    const std::size_t bytes = slice.data.size() / move.to.size();
    slice.data = slice.data.subspan(part * bytes, bytes);
    slice.shape = Shape(std::vector<Extent>(slice.shape.begin() + 1, slice.shape.end()));
    append(slice);
  } else if (move.from.size() > 1 && move.to.size() == 1) {
    for (const io::SourceTensor* tensor : move.from) append(*tensor);
  } else {
    append(*move.from[part]);
  }
  if (const double add = move.from_layout.offset - move.to_layout.offset; add != 0)
    for (float& value : values) value = static_cast<float>(value + add);
  if (move.turns_rows())
    values = with_rows_turned(values, move.from_layout.heads, rope_dims,
                              move.shape.rank() > 1 ? static_cast<std::size_t>(move.shape[1]) : 1,
                              move.to_layout.neighbours);
  if (move.from_transposed != move.to_transposed) {
    const auto rows = static_cast<std::size_t>(move.shape[0]), columns = static_cast<std::size_t>(move.shape[1]);
    values = move.from_transposed ? transposed(values, columns, rows) : transposed(values, rows, columns);
  }
  return values;
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
  for (const OpNode& node : from.nodes) {
    const auto found = nodes.find(node.id);
    if (found == nodes.end() || found->second->op != node.op || found->second->inputs != node.inputs) {
      problem(fmt::format("{} would be lost, or another op", node.id));
      continue;
    }
    for (const auto& [key, value] : node.attributes) {
      if (key == "pairs" || key == "weight_offset") continue;  // are converted
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
  for (const TensorDesc& tensor : from.tensors)
    if (!tensor.keys.empty() && !to.find(tensor.name)) problem(fmt::format("{} would be lost", tensor.name));
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
    if (config.state_space.inner > 0)
      throw FileError(fmt::format(
          "{}: models whose layers keep states are not converted between GGUF files and folders; the output's "
          "ending .safetensors converts the tensors alone",
          config.source));
    // The tower is written apart, and with it what joins it to the language model.
    sees = config;
    config.reads_images = config.sees_images_whole = false;
    config.image_layers = 0;
    from = build(config, [&](std::string_view key) { return names.find(key) != nullptr; });
    check_tensors(from, names);
  }
  void plan(const ModelConfig& elsewhere) {
    to = graph_elsewhere(from, elsewhere);
    require_same(from, to);
    moves = moves_of(from, to, names, options);
    for (const Move& move : moves)
      for (const io::SourceTensor* tensor : move.from) total += tensor->size_bytes();
  }
  void put(const Move& move, std::size_t part, const std::function<void(std::span<const std::byte>)>& sink) {
    if (options.progress) options.progress(move.to[part], done, total);
    put_as(move.type, values_of(source, move, part, config.rope_dims), source, move.to[part], sink);
    for (const io::SourceTensor* tensor : move.from) done += tensor->size_bytes() / move.to.size();
  }

  const io::TensorSource& source;
  const ConvertOptions& options;
  TensorNames names;
  ModelConfig config;
  ModelConfig sees;  ///< with what joins a tower to it
  /// Notes the tensors that are not part of a language model, unless they are written too.
  std::vector<std::string> notes(bool has_tower) const {
    std::vector<std::string> notes = source.notes();
    if (has_tower) return notes;
    const auto seeing = std::count_if(source.tensors().begin(), source.tensors().end(), [](const io::SourceTensor& t) {
      return t.name.find("vision") != std::string::npos || t.name.find("multi_modal") != std::string::npos;
    });
    if (seeing > 0) notes.push_back(fmt::format("{} tensors of the vision part are left behind", seeing));
    return notes;
  }

  ModelGraph from, to;
  std::vector<Move> moves;
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

}  // namespace

Converted convert_to_folder(const io::TensorSource& source, const fs::path& folder, const ConvertOptions& options) {
  Conversion c(source, options);
  Json json = config_to_json(c.from);
  c.plan(config_from_json(json, (folder / "config.json").string()));
  Converted result{0, c.notes(false)};
  TokenizerFiles tokenizer;
  if (options.with_tokenizer) tokenizer = tokenizer_files_of(*source.gguf(), c.config, json);
  check_folder(folder, options, tokenizer, result.notes);

  std::vector<io::TensorInfo> infos;
  std::vector<std::pair<const Move*, std::size_t>> parts;
  for (const Move& move : c.moves)
    for (std::size_t part = 0; part < move.to.size(); ++part) {
      infos.push_back({move.to[part], std::string(file_name_of(move.type)), shape_of_part(move)});
      parts.emplace_back(&move, part);
    }
  const BlockType type = c.moves.front().type;  // of the embedding
  const char* dtype = type == BlockType::f16 ? "float16" : type == BlockType::bf16 ? "bfloat16" : "float32";
  json.update({{"dtype", dtype}, {"torch_dtype", dtype}});

  std::error_code error;
  // A folder that was created here is removed again if nothing is written into it.
  struct MadeFolder {
    ~MadeFolder() {
      std::error_code ignored;
      if (made) fs::remove(path, ignored);
    }
    fs::path path;
    bool made;
  } const made{folder, fs::create_directories(folder, error)};
  if (error)
    throw FileError(fmt::format("{}: the folder cannot be made: {}; choose another place, or change the permissions",
                                folder.string(), error.message()));
  io::SafetensorsMetadata metadata = about_model(source.gguf()->metadata());
  metadata["format"] = "pt";
  io::write_safetensors(folder / "model.safetensors", infos, metadata,
                        [&](std::size_t i, const auto& put) { c.put(*parts[i].first, parts[i].second, put); });
  for (const auto& [name, text] : tokenizer.files) write_file_atomically(folder / name, text);
  write_file_atomically(folder / "config.json", json.dump(2) + "\n");
  result.tensors = infos.size();
  return result;
}

Converted convert_to_gguf(const io::TensorSource& source, const fs::path& file, const ConvertOptions& options) {
  Conversion c(source, options);
  GgufConfig gguf = config_to_gguf(c.from);
  add_about_model(gguf.metadata, source.path());
  ModelConfig elsewhere = config_from_gguf(gguf.metadata, c.config.vocabulary);
  take_factors(elsewhere, [&](const char* name) {
    const auto found = gguf.factors.find(name);
    return found == gguf.factors.end() ? std::vector<double>()
                                       : std::vector<double>(found->second.begin(), found->second.end());
  });
  c.plan(elsewhere);
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
  for (const Move& move : c.moves) infos.push_back({move.to[0], shape_of_part(move), move.type});
  const std::size_t count = infos.size();
  io::GgufWriter writer(file, gguf.metadata, std::move(infos));
  for (const auto& [name, values] : gguf.factors) writer.write(std::as_bytes(std::span(values)));
  for (const Move& move : c.moves) c.put(move, 0, [&](std::span<const std::byte> bytes) { writer.write(bytes); });
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
