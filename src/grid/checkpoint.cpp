#include "weft/grid/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>

#include "base/quote.hpp"
#include "grid/layer_rows.hpp"
#include "io/content_hash.hpp"
#include "io/safetensors.hpp"
#include "nn/state_views.hpp"
#include "weft/nn/state.hpp"

namespace weft::grid {
namespace {

constexpr const char* kFormatKey = "format";
constexpr const char* kFormatName = "weft-grid-checkpoint-1";
constexpr const char* kDescription = "description";
constexpr const char* kValues = "values";
constexpr const char* kPacked = "packed";
constexpr const char* kMaster = "master";

/// A parameter in a file: its full name, shape, type and values.
struct StoredParameter {
  std::string name;
  Shape shape;
  DType type;
  Tensor values;  // as f32; undefined while a file is read
};

void list_parameters(const LayerModule& module, bool with_values, std::vector<StoredParameter>& list) {
  const std::string path = module.path();
  const auto shapes = module.own_parameters();
  const std::vector<Tensor> values = with_values ? module.weights() : std::vector<Tensor>(shapes.size());
  for (std::size_t i = 0; i < shapes.size(); ++i)
    list.push_back({path + "." + shapes[i].first, shapes[i].second, module.layer().dtype, values[i]});
  for (const auto& child : module.inside()) list_parameters(*child, with_values, list);
  if (module.gate()) list_parameters(*module.gate(), with_values, list);
}

std::vector<StoredParameter> parameters_of(const Network& network, bool with_values) {
  std::vector<StoredParameter> list;
  for (std::size_t i = 0; i < network.description().layers.size(); ++i)
    list_parameters(network.layer(i), with_values, list);
  return list;
}

std::string stored_dtype(DType type) { return is_packed(type) ? "U8" : std::string(io::safetensors_dtype(type)); }
Shape stored_shape(DType type, const Shape& shape) {
  if (!is_packed(type)) return shape;
  return {static_cast<Extent>(bytes_of(type, static_cast<std::size_t>(shape.numel())))};
}
bool has_scale(DType type) { return packed_bytes(type, 0) > 0; }
std::string scale_name(const std::string& parameter) { return parameter + ".scale"; }

}  // namespace

void save(const Network& network, const std::filesystem::path& path, SaveOptions options) {
  io::SafetensorsMetadata metadata = {{kFormatKey, kFormatName},
                                      {kDescription, to_value(network.description()).to_json()},
                                      {kValues, options.keep_master ? kMaster : kPacked}};
  std::vector<io::TensorView> views;
  std::deque<PackedValues> packed;  // views refer to its elements
  const nn::StateDict state = options.keep_master ? network.state_dict() : nn::StateDict{};
  for (const nn::NamedArray& a : state) views.push_back(nn::view_of(a));
  if (!options.keep_master) {
    const std::vector<StoredParameter> list = parameters_of(network, true);
    std::vector<Tensor> values;
    for (const StoredParameter& p : list) values.push_back(p.values);
    eval(values);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const StoredParameter& p = list[i];
      try {
        packed.push_back(pack(values[i].to_vector<float>(), p.type));
      } catch (Error& error) {
        error.add_context(fmt::format("packing {}; keep_master stores it as it is", p.name));
        throw;
      }
      const PackedValues& stored = packed.back();
      views.push_back({p.name, stored_dtype(p.type), stored_shape(p.type, p.shape), stored.bytes});
      if (has_scale(p.type))
        views.push_back({scale_name(p.name), "F32", {}, std::as_bytes(std::span(&stored.scale, 1))});
    }
  }
  io::add_content_hash(metadata, views);
  io::write_safetensors(path, views, metadata);
}

namespace {

const std::string& metadata_text(const io::SafetensorsFile& file, const char* key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end())
    throw FileError(fmt::format("{}: its metadata has no \"{}\", so it is not a checkpoint of a volumetric network",
                                file.source(), key));
  return it->second;
}

/// The tensors of a file that a description asks for; what differs is collected.
class CheckpointReader {
 public:
  CheckpointReader(const io::SafetensorsFile& file, bool is_packed) : file_(file), is_packed_(is_packed) {}

  /// Finds all before any is read.
  nn::StateDict read(const std::vector<StoredParameter>& expected) {
    std::vector<Found> found;
    for (const StoredParameter& p : expected) {
      const DType type = is_packed_ ? p.type : DType::f32;
      found.push_back({&p, type, find(p.name, stored_dtype(type), stored_shape(type, p.shape)), nullptr});
      if (has_scale(type)) found.back().scale = find(scale_name(p.name), "F32", {});
    }
    for (const io::TensorView& view : file_.tensors())
      if (!used_.contains(view.name)) differences_ += fmt::format("\n  unknown  {}", quote(view.name));
    if (!differences_.empty())
      throw FileError(fmt::format("{}: its tensors are not those of its description{}", file_.source(), differences_));
    nn::StateDict state;
    for (const Found& f : found) state.push_back(values_of(f));
    return state;
  }

 private:
  struct Found {
    const StoredParameter* parameter;
    DType type;
    const io::TensorView *values, *scale;
  };

  const io::TensorView* find(const std::string& name, const std::string& dtype, const Shape& shape) {
    const io::TensorView* view = file_.find(name);
    used_.insert(name);
    if (!view)
      differences_ += fmt::format("\n  missing  {}  {} {}", name, dtype, shape.to_string());
    else if (view->dtype != dtype || view->shape != shape)
      differences_ += fmt::format("\n  differs  {}  {} {}, not {} {}", name, quote(view->dtype),
                                  view->shape.to_string(), dtype, shape.to_string());
    return view;
  }

  nn::NamedArray values_of(const Found& f) const {
    PackedValues packed{f.type,
                        1,
                        static_cast<std::size_t>(f.parameter->shape.numel()),
                        {f.values->data.begin(), f.values->data.end()}};
    if (f.scale) std::memcpy(&packed.scale, f.scale->data.data(), sizeof packed.scale);
    try {
      const std::vector<float> values = unpack(packed);
      const auto bytes = std::as_bytes(std::span(values));
      return {f.parameter->name, DType::f32, f.parameter->shape, {bytes.begin(), bytes.end()}};
    } catch (const UsageError& error) {
      throw FileError(fmt::format("{}: {}: {}", file_.source(), f.parameter->name, error.what()));
    }
  }

  const io::SafetensorsFile& file_;
  bool is_packed_;
  std::set<std::string, std::less<>> used_;
  std::string differences_;
};

}  // namespace

std::unique_ptr<Network> load(const std::filesystem::path& path) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  if (const std::string& format = metadata_text(file, kFormatKey); format != kFormatName)
    throw FileError(fmt::format("{}: its format is {}, not \"{}\"", file.source(), quote(format), kFormatName));
  io::check_content_hash(file, "use another copy");
  const std::string& values = metadata_text(file, kValues);
  if (values != kPacked && values != kMaster)
    throw FileError(fmt::format("{}: its values are {}, neither \"{}\" nor \"{}\"", file.source(), quote(values),
                                kPacked, kMaster));
  std::unique_ptr<Network> network;
  try {
    network = std::make_unique<Network>(from_json(metadata_text(file, kDescription), file.source() + ": description"));
  } catch (const UsageError& error) {
    throw FileError(fmt::format("{}: {}", file.source(), error.what()));
  }
  network->load_state_dict(CheckpointReader(file, values == kPacked).read(parameters_of(*network, false)));
  return network;
}

}  // namespace weft::grid
