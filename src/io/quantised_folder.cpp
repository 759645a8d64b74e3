#include "io/quantised_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/python_json.hpp"
#include "base/quote.hpp"
#include "io/fp8_folder.hpp"
#include "io/integer_layer.hpp"
#include "io/mxfp4_experts.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr JsonLimits kDescriptionLimits{.max_bytes = std::uint64_t{8} << 20, .max_values = 200'000};
constexpr int kBitsMax = 8;

/// What config.json says about quantised weights.
class Description {
 public:
  Description(const Json& json, std::string source) : json_(json), source_(std::move(source)) {
    if (!json_.is_object()) fail("it is not an object");
    const std::string method = text("quant_method", "");
    if (method.empty())
      read_mlx();
    else if (method == "gptq")
      read_gptq();
    else if (method == "awq")
      read_awq();
    else
      fail(fmt::format(
          "the method is {}; Weft reads gptq, awq, mxfp4, fp8, fbgemm_fp8, compressed-tensors, modelopt and MLX's. "
          "Take another copy of the model, or one that is not quantised",
          quote(method, 40)));
  }

  bool is_mlx() const { return is_mlx_; }
  const IntegerFormat& format() const { return format_; }
  /// MLX may describe single layers apart.
  IntegerFormat format_of(const std::string& layer) const {
    const auto own = is_mlx_ ? json_.find(layer) : json_.end();
    if (own == json_.end() || !own->is_object()) return format_;
    return Description(*own, source_ + ", layer " + quote(layer, 80)).format_;
  }

 private:
  [[noreturn]] void fail(const std::string& fact) const { throw FileError(fmt::format("{}: {}", source_, fact)); }
  std::string text(const char* key, const char* fallback) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return fallback;
    if (!found->is_string()) fail(fmt::format("{} is {}, not a string", key, found->dump()));
    return found->get<std::string>();
  }
  Extent integer(const char* key, Extent least, Extent most) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail(fmt::format("{} is missing", key));
    if (!found->is_number_integer() || *found < least || *found > most)
      fail(fmt::format("{} is {}, not a whole number from {} to {}", key, found->dump(), least, most));
    return found->get<Extent>();
  }
  void read_group_size() { format_.group_size = integer("group_size", -1, 1 << 24); }

  void read_gptq() {
    const std::string form = text("checkpoint_format", "gptq");
    if (form != "gptq" && form != "gptq_v2")
      fail(fmt::format("the checkpoint_format of GPTQ is {}; Weft reads \"gptq\" and \"gptq_v2\"", quote(form, 40)));
    format_.packing = form == "gptq" ? IntegerPacking::gptq_v1 : IntegerPacking::gptq_v2;
    read_group_size();
  }
  void read_awq() {
    std::string version = text("version", "gemm");
    std::transform(version.begin(), version.end(), version.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (version != "gemm") fail(fmt::format("the version of AWQ is {}; Weft reads \"gemm\"", quote(version, 40)));
    format_.packing = IntegerPacking::awq;
    read_group_size();
  }
  void read_mlx() {
    is_mlx_ = true;
    const std::string mode = text("mode", "affine");
    if (mode != "affine" && mode != "mxfp4")
      fail(fmt::format("the mode of MLX is {}; Weft reads \"affine\" and \"mxfp4\"", quote(mode, 40)));
    format_.packing = mode == "affine" ? IntegerPacking::mlx : IntegerPacking::mlx_mxfp4;
    format_.bits = static_cast<int>(integer("bits", 2, kBitsMax));
    if (format_.bits == 7) fail("bits is 7; MLX has 2, 3, 4, 5, 6 and 8");
    read_group_size();
  }

  const Json& json_;
  std::string source_;
  bool is_mlx_ = false;
  IntegerFormat format_;
};

/// The object that describes quantised weights, in the file's own or in its text model's; null: there is none.
const Json* description_in(const Json& config) {
  if (!config.is_object()) return nullptr;
  for (const char* key : {"quantization", "quantization_config", "compression_config"})
    if (const auto found = config.find(key); found != config.end() && !found->is_null()) return &*found;
  const auto text = config.find("text_config");
  return text == config.end() ? nullptr : description_in(*text);
}

std::string_view name_before(std::string_view name, std::string_view ending) {
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : std::string_view();
}

/// Layers by what became of them, for notes.
struct Count {
  std::size_t layers = 0;
  std::map<int, bool> bits;
};

/// The source with tensors that were made of its own, and those that were not used.
TensorSource with_made_tensors(const TensorSource& source, std::vector<SourceTensor> tensors,
                               const std::unordered_set<const SourceTensor*>& used, const std::filesystem::path& config,
                               std::vector<std::string> notes) {
  for (const SourceTensor& tensor : source.tensors())
    if (!used.contains(&tensor)) tensors.push_back(tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return a.name < b.name; });
  // Who keeps what was made of these files must see that the description changed too.
  std::vector<MappedFile> files = source.files();
  files.emplace_back(config);
  return TensorSource::of(source.path(), source.kind(), std::move(tensors), std::move(files),
                          source.safetensors_metadata(), std::move(notes));
}

}  // namespace

TensorSource with_quantised_layers(TensorSource source) {
  if (source.kind() != SourceKind::folder) return source;
  const std::filesystem::path file = source.path() / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return source;
  const Json config = read_python_json_file(file, kDescriptionLimits);
  const Json* json = description_in(config);
  if (!json) {
    for (const SourceTensor& tensor : source.tensors())
      if (tensor.name.ends_with(".qweight"))
        throw FileError(fmt::format(
            "{}: {} holds packed integers, and config.json has no quantization_config that tells how; take a "
            "copy of the model that has one",
            source.path().string(), quote(tensor.name)));
    return source;
  }
  if (json->is_object() && json->value("quant_method", Json()) == "mxfp4") {
    std::vector<SourceTensor> experts;
    std::unordered_set<const SourceTensor*> parts;
    add_mxfp4_experts(source, experts, parts);
    return with_made_tensors(source, std::move(experts), parts, file, {});
  }
  const std::string place = file.string() + ": quantization";
  if (is_method_of_fp8(*json)) {
    std::vector<SourceTensor> matrices;
    std::unordered_set<const SourceTensor*> parts;
    std::vector<std::string> notes;
    add_fp8_layers(*json, place, source, matrices, parts, notes);
    return with_made_tensors(source, std::move(matrices), parts, file, std::move(notes));
  }
  const Description description(*json, place);
  const std::string_view codes = description.is_mlx() ? ".weight" : ".qweight",
                         probe = description.is_mlx() ? ".scales" : codes;

  std::vector<SourceTensor> tensors;
  std::unordered_set<const SourceTensor*> used;
  std::map<std::pair<std::string_view, BlockType>, Count> inexact;
  std::size_t layers = 0;
  for (const SourceTensor& tensor : source.tensors()) {
    const std::string name(name_before(tensor.name, probe));
    if (name.empty()) continue;
    const auto part = [&](std::string_view ending) {
      const SourceTensor* found = source.find(name + std::string(ending));
      if (found) used.insert(found);
      return found;
    };
    const IntegerTensors parts = description.is_mlx()
                                     ? IntegerTensors{part(codes), part(".scales"), part(".biases"), nullptr}
                                     : IntegerTensors{part(codes), part(".scales"), part(".qzeros"), part(".g_idx")};
    const auto layer = std::make_shared<const IntegerLayer>(description.format_of(name), parts,
                                                            source.path().string() + ": layer " + quote(name));
    if (!description.is_mlx() && source.find(name + ".weight"))
      throw FileError(fmt::format("{}: {} is there twice, as qweight and as weight; is the file whole?",
                                  source.path().string(), quote(name)));
    tensors.push_back({name + ".weight",
                       layer->shape(),
                       std::string(file_name_of(layer->type())),
                       layer->type(),
                       {},
                       [layer](std::span<std::byte> blocks) { layer->write(blocks); }});
    ++layers;
    if (layer->reason().empty()) continue;
    Count& count = inexact[{layer->reason(), layer->type()}];
    ++count.layers;
    count.bits[layer->bits()] = true;
  }
  std::vector<std::string> notes;
  for (const auto& [why, count] : inexact) {
    std::string bits;
    for (const auto& [each, unused] : count.bits) bits += (bits.empty() ? "" : ", ") + std::to_string(each);
    notes.push_back(fmt::format("{} of {} quantised layers ({} bits) are unpacked to {}, because {}", count.layers,
                                layers, bits, file_name_of(why.second), why.first));
  }
  return with_made_tensors(source, std::move(tensors), used, file, std::move(notes));
}

}  // namespace weft::io
