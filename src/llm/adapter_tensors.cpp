#include "llm/adapter_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/quote.hpp"
#include "io/tensor_source.hpp"
#include "llm/adapter_contents.hpp"
#include "llm/convert.hpp"
#include "llm/convert_moves.hpp"
#include "llm/convert_values.hpp"
#include "llm/families.hpp"
#include "llm/read_config.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::llm {
namespace {

using Edit = std::function<void(std::vector<float>& values)>;

/// Finds the tensors of a model that adapters name.
class TensorFinder {
 public:
  TensorFinder(const io::TensorSource& source, const TensorNames& names)
      : source_(source), names_(names), graph_(graph_of_text(source, names)) {}

  bool is_tied() const { return graph_.find("lm_head.weight") == nullptr; }
  std::string head_key() const { return graph_.config.from_gguf ? "output.weight" : "lm_head.weight"; }
  const io::SourceTensor& table() const { return *names_.find(graph_.at("embed.weight").keys[0]); }
  static bool is_head(std::string_view key) {
    return without_prefix(key) == "lm_head.weight" || key == "output.weight";
  }

  /// Nothing for the head of a model whose table of tokens it is too.
  const io::SourceTensor* find(const std::string& key, bool is_folder, const std::string& adapter) {
    if (is_head(key) && is_tied()) return nullptr;
    const bool is_same_kind = is_folder != graph_.config.from_gguf;
    const io::SourceTensor* found = is_same_kind ? by_name(key) : by_graph(key);
    if (!found)
      throw FileError(fmt::format(
          "{}: the adapter holds {}, and the model {} has no tensor of this name{}; is it an adapter of this model?",
          adapter, quote(key, 120), graph_.config.source,
          is_same_kind ? "" : " that both kinds of files write in one way"));
    return found;
  }

 private:
  const io::SourceTensor* by_name(const std::string& key) const {
    if (const io::SourceTensor* found = names_.find(key)) return found;
    for (const io::SourceTensor& tensor : source_.tensors())
      if (without_prefix(tensor.name) == without_prefix(key)) return &tensor;
    return nullptr;
  }
  /// By the constant that both kinds of files have, if neither of them writes it in a way of its own.
  const io::SourceTensor* by_graph(const std::string& key) {
    if (!form_) form_ = graph_of_other_kind(graph_);
    for (const TensorDesc& tensor : form_->tensors) {
      if (tensor.keys.size() != 1 || without_prefix(tensor.keys[0]) != without_prefix(key)) continue;
      const TensorDesc* own = graph_.find(tensor.name);
      if (!own || own->keys.size() != 1 || own->cut || tensor.cut || own->transposed != tensor.transposed)
        return nullptr;
      return written_alike(tensor.name) ? names_.find(own->keys[0]) : nullptr;
    }
    return nullptr;
  }
  bool written_alike(const std::string& name) const {
    const auto layout = [&](const ModelGraph& graph) {
      const auto layouts = layouts_of(graph);
      const auto found = layouts.find(name);
      return found == layouts.end() ? Layout() : found->second;
    };
    const Layout one = layout(graph_), other = layout(*form_);
    return one.offset == other.offset && one.neighbours == other.neighbours;
  }

  const io::TensorSource& source_;
  const TensorNames& names_;
  const ModelGraph graph_;
  std::optional<ModelGraph> form_;
};

void require_shape(const Shape& given, const Shape& wanted, const std::string& key, const std::string& adapter) {
  if (given == wanted) return;
  const bool is_longer = given.rank() == 2 && wanted.rank() == 2 && given[1] == wanted[1];
  throw FileError(fmt::format(
      "{}: {} is {}, and the model's is {}{}", adapter, quote(key, 120), given.to_string(), wanted.to_string(),
      is_longer ? "; the adapter is of a model with another number of tokens: merge it with PEFT" : ""));
}

/// W + scale (W' - W).
Edit replacement(std::shared_ptr<const io::TensorSource> source, io::SourceTensor tensor, double scale) {
  return [source = std::move(source), tensor = std::move(tensor), scale](std::vector<float>& values) {
    std::vector<float> saved(values.size());
    source->read_f32(tensor, saved);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = scale == 1 ? saved[i] : static_cast<float>(values[i] + scale * (double{saved[i]} - values[i]));
  };
}

/// W + scale (B A)^T, W [tokens, width].
Edit low_rank_of_table(ModuleChange change) {
  return [change = std::move(change)](std::vector<float>& values) {
    const Tensor a = tensor_from_bytes(change.a.data(), {change.rank, change.in}, DType::f32, kCpu),
                 b = tensor_from_bytes(change.b.data(), {change.out, change.rank}, DType::f32, kCpu);
    values = (tensor_from_bytes(values.data(), {change.in, change.out}, DType::f32, kCpu) +
              matmul(transpose(a), transpose(b)) * change.scale)
                 .to_vector<float>();
  };
}

}  // namespace

ModelGraph graph_of_text(const io::TensorSource& source, const TensorNames& names) {
  ModelConfig config = read_config(source, names);
  config.reads_images = config.sees_images_whole = false;
  config.image_layers = 0;
  const Family& family = family_of(config);
  ModelGraph graph = family.build({config, family, [&](std::string_view key) { return names.find(key) != nullptr; }});
  check_tensors(graph, names);
  return graph;
}

io::SourceTensor edited(const std::shared_ptr<const io::TensorSource>& source, const io::SourceTensor& tensor,
                        Edit edit) {
  io::SourceTensor made = tensor;
  const BlockType type =
      tensor.type == BlockType::f32 || tensor.type == BlockType::bf16 ? *tensor.type : BlockType::f16;
  made.type = type;
  made.type_name = std::string(file_name_of(type));
  made.data = {};
  made.make = [source, tensor, edit = std::move(edit), type](std::span<std::byte> to) {
    const io::LoadedTensor loaded = io::TensorSource::loaded(tensor);
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
    source->read_f32(loaded.tensor, values);
    edit(values);
    std::size_t at = 0;
    put_as(type, values, *source, tensor.name, [&](std::span<const std::byte> piece) {
      std::copy(piece.begin(), piece.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
      at += piece.size();
    });
  };
  return made;
}

std::optional<io::TensorSource> with_saved_tensors(const io::TensorSource& source,
                                                   std::span<const AdapterUse> adapters) {
  std::map<std::string, std::vector<Edit>> edits;  // by the names of the model's tensors
  std::vector<Edit> head_edits;                    // of a head that was the table
  std::optional<TensorNames> names;
  std::optional<TensorFinder> finder;
  for (const AdapterUse& use : adapters) {
    AdapterContents contents = read_contents(use.path, use.scale);
    if (!contents.changes_tensors()) continue;
    if (!finder) finder.emplace(source, names.emplace(source));
    const std::string where = use.path.string();
    const auto add = [&](const std::string& key, const Shape& shape, Edit edit) {
      const io::SourceTensor* found = finder->find(key, contents.is_folder, where);
      require_shape(shape, (found ? *found : finder->table()).shape, key, where);
      (found ? edits[found->name] : head_edits).push_back(std::move(edit));
    };
    for (auto& [key, tensor] : contents.saved) add(key, tensor.shape, replacement(contents.source, tensor, use.scale));
    for (auto& [module, change] : contents.tables) {
      const Shape shape{change.in, change.out};
      add(module + ".weight", shape, low_rank_of_table(std::move(change)));
    }
  }
  if (!finder) return std::nullopt;
  const auto base = std::make_shared<const io::TensorSource>(source);
  const auto all_of = [](std::vector<Edit> list) {
    return [list = std::move(list)](std::vector<float>& values) {
      for (const Edit& edit : list) edit(values);
    };
  };
  std::vector<io::SourceTensor> tensors = source.tensors();
  if (finder->is_tied() && (edits.contains(finder->table().name) || !head_edits.empty())) {
    // What of the two does not change stays what it was.
    io::SourceTensor head = edited(base, finder->table(), all_of(std::move(head_edits)));
    head.name = finder->head_key();
    std::erase_if(tensors, [&](const io::SourceTensor& tensor) { return tensor.name == head.name; });
    tensors.push_back(std::move(head));
  }
  for (io::SourceTensor& tensor : tensors)
    if (const auto found = edits.find(tensor.name); found != edits.end())
      tensor = edited(base, tensor, all_of(std::move(found->second)));
  return source.with_tensors(std::move(tensors));
}

}  // namespace weft::llm
