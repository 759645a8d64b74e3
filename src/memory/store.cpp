#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/quote.hpp"
#include "base/text_map.hpp"
#include "base/utf8.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"
#include "weft/metatensor.hpp"
#include "weft/ops.hpp"

namespace weft::memory {
namespace {

// Rows of a block. All blocks have this shape, so that one plan computes every product.
constexpr std::size_t kBlockRows = 1024;
constexpr Extent kWidthMax = 65'536;
constexpr const char* kFormatKey = "weft.memory";

/// v / |v|. Errors: UsageError.
std::vector<float> normalised(std::span<const float> given, Extent width, std::string_view what) {
  if (static_cast<Extent>(given.size()) != width)
    throw UsageError(fmt::format("memory: {} has {} numbers; the store has width {}", what, given.size(), width));
  double squares = 0;
  for (const float x : given) squares += static_cast<double>(x) * x;
  if (!std::isfinite(squares) || squares == 0)
    throw UsageError(fmt::format("memory: {} is zero, or has numbers that are not finite", what));
  const double scale = 1 / std::sqrt(squares);
  std::vector<float> made(given.size());
  std::transform(given.begin(), given.end(), made.begin(),
                 [&](float x) { return static_cast<float>(static_cast<double>(x) * scale); });
  return made;
}

bool has_members(const Value& metadata, const Value& where) {
  return std::all_of(where.members().begin(), where.members().end(), [&](const ValueObject::Member& wanted) {
    const Value* given = metadata.find(wanted.key);
    return given && *given == wanted.value;
  });
}

bool has_tensor(const Value& value) {
  if (value.is_tensor()) return true;
  if (value.is_array()) return std::any_of(value.elements().begin(), value.elements().end(), has_tensor);
  return value.is_object() && std::any_of(value.members().begin(), value.members().end(),
                                          [](const ValueObject::Member& each) { return has_tensor(each.value); });
}

}  // namespace

struct Store::State {
  /// Up to kBlockRows rows, and the tensor of them with zeros behind; undefined after a change.
  struct Block {
    std::vector<float> rows;
    Tensor tensor;
  };
  Extent width;
  std::vector<Entry> entries;
  std::vector<Block> blocks;
  TextMap<std::size_t> places;  // by id
  std::mt19937_64 random{std::random_device{}()};

  std::span<float> row(std::size_t i) {
    Block& block = blocks[i / kBlockRows];
    return std::span(block.rows)
        .subspan((i % kBlockRows) * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
  }
  void append(const std::vector<float>& row) {
    if (entries.size() % kBlockRows == 0) blocks.emplace_back();
    Block& block = blocks.back();
    block.rows.insert(block.rows.end(), row.begin(), row.end());
    block.tensor = {};
  }
  const Tensor& tensor_of(Block& block) const {
    if (!block.tensor.defined() || block.tensor.device() != default_device()) {
      std::vector<float> padded = block.rows;
      padded.resize(kBlockRows * static_cast<std::size_t>(width));
      block.tensor = tensor<float>(std::span<const float>(padded), {static_cast<Extent>(kBlockRows), width});
    }
    return block.tensor;
  }
  std::string new_id() {
    std::string id;
    do id = fmt::format("m-{:016x}", random());
    while (places.contains(id));
    return id;
  }
};

Store::Store(Extent width) : state_(std::make_unique<State>()) {
  if (width < 1 || width > kWidthMax)
    throw UsageError(fmt::format("memory: a width of {}; 1 to {} are possible", width, kWidthMax));
  state_->width = width;
}
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

Extent Store::width() const { return state_->width; }
std::size_t Store::size() const { return state_->entries.size(); }
const std::vector<Entry>& Store::entries() const { return state_->entries; }

std::string Store::add(Entry entry, std::span<const float> embedding) {
  const std::vector<float> row = normalised(embedding, state_->width, "an embedding");
  for (const std::string* text : {&entry.id, &entry.name_space, &entry.text})
    if (find_invalid_utf8(*text)) throw UsageError(fmt::format("memory: {} is not UTF-8", quote(*text)));
  if (!entry.metadata.is_object() || has_tensor(entry.metadata))
    throw UsageError("memory: the metadata of an entry are an object of JSON");
  if (entry.id.empty()) entry.id = state_->new_id();
  if (state_->places.contains(entry.id))
    throw UsageError(fmt::format("memory: the id {} is taken; remove that entry first", quote(entry.id)));
  state_->append(row);
  state_->places.emplace(entry.id, state_->entries.size());
  state_->entries.push_back(std::move(entry));
  return state_->entries.back().id;
}

bool Store::remove(std::string_view id) {
  State& s = *state_;
  const auto found = s.places.find(id);
  if (found == s.places.end()) return false;
  const std::size_t at = found->second, last = s.entries.size() - 1;
  s.places.erase(found);
  if (at != last) {
    std::copy_n(s.row(last).begin(), s.width, s.row(at).begin());
    s.blocks[at / kBlockRows].tensor = {};
    s.entries[at] = std::move(s.entries[last]);
    s.places.find(s.entries[at].id)->second = at;
  }
  s.entries.pop_back();
  State::Block& block = s.blocks.back();
  block.rows.resize(block.rows.size() - static_cast<std::size_t>(s.width));
  block.tensor = {};
  if (block.rows.empty()) s.blocks.pop_back();
  return true;
}

const Entry* Store::find(std::string_view id) const {
  const auto found = state_->places.find(id);
  return found == state_->places.end() ? nullptr : &state_->entries[found->second];
}

std::map<std::string, std::size_t> Store::namespaces() const {
  std::map<std::string, std::size_t> counts;
  for (const Entry& entry : state_->entries) ++counts[entry.name_space];
  return counts;
}

std::vector<Match> Store::search(std::span<const float> query, const SearchOptions& options) const {
  if (!options.where.is_object()) throw UsageError("memory: `where` is an object of members that metadata must have");
  const std::vector<float> unit = normalised(query, state_->width, "the query");
  const Tensor column = tensor<float>(std::span<const float>(unit), {state_->width, 1});
  // The best so far, as a heap with the worst on top.
  struct Found {
    float similarity;
    std::size_t place;
  };
  const auto is_better = [](const Found& a, const Found& b) {
    return a.similarity != b.similarity ? a.similarity > b.similarity : a.place < b.place;
  };
  std::vector<Found> best;
  for (std::size_t b = 0; b < state_->blocks.size() && options.top_k > 0; ++b) {
    const std::vector<float> scores = matmul(state_->tensor_of(state_->blocks[b]), column).to_vector<float>();
    const std::size_t first = b * kBlockRows, count = std::min(kBlockRows, state_->entries.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      const Found found{std::clamp(scores[i], -1.0f, 1.0f), first + i};
      if (found.similarity < options.similarity_min) continue;
      if (best.size() == options.top_k && !is_better(found, best.front())) continue;
      const Entry& entry = state_->entries[found.place];
      if (options.name_space && entry.name_space != *options.name_space) continue;
      if (!has_members(entry.metadata, options.where)) continue;
      if (best.size() == options.top_k) {
        std::pop_heap(best.begin(), best.end(), is_better);
        best.pop_back();
      }
      best.push_back(found);
      std::push_heap(best.begin(), best.end(), is_better);
    }
  }
  std::sort(best.begin(), best.end(), is_better);
  std::vector<Match> matches;
  for (const Found& each : best) matches.push_back({state_->entries[each.place], static_cast<double>(each.similarity)});
  return matches;
}

std::size_t estimated_tokens(std::string_view text) { return (text.size() + 3) / 4; }

Recall Store::recall(std::span<const float> query, const RecallOptions& options) const {
  Recall made;
  for (Match& match : search(query, options.search)) {
    std::string longer = made.text + fmt::format("[{}] {}\n", made.matches.size() + 1, match.entry.text);
    // Counted as a whole: tokens do not end where texts do.
    const std::size_t tokens = options.tokens(longer);
    if (tokens > options.token_budget) continue;
    made.text = std::move(longer);
    made.tokens = tokens;
    made.matches.push_back(std::move(match));
  }
  return made;
}

void Store::save(const std::filesystem::path& path) const {
  std::vector<std::string> texts;
  for (const Entry& entry : state_->entries)
    texts.push_back(
        Value::object(
            {{"id", entry.id}, {"namespace", entry.name_space}, {"text", entry.text}, {"metadata", entry.metadata}})
            .to_json());
  const auto rows = [this](const std::function<void(std::span<const std::byte>)>& put) {
    for (const State::Block& block : state_->blocks) put(std::as_bytes(std::span(block.rows)));
  };
  metatensor::Writer()
      .tensor("embeddings", DType::f32, {static_cast<Extent>(state_->entries.size()), state_->width}, rows)
      .blob("entries", texts)
      .metadata(kFormatKey, "1")
      .save(path);
}

Store Store::load(const std::filesystem::path& path) {
  const metatensor::File file = metatensor::File::open(path);
  const auto refuse = [&](std::string_view fact) {
    throw FileError(fmt::format("{}: {}; give a file that a memory was saved in", path.string(), fact));
  };
  const auto format = file.metadata().find(kFormatKey);
  if (format == file.metadata().end() || format->second != "1") refuse("it is not a memory of version 1");
  const metatensor::Node *const embeddings = file.schema().find("embeddings"), *const entries =
                                                                                   file.schema().find("entries");
  if (!embeddings || embeddings->kind != metatensor::Kind::flat || embeddings->dtype != DType::f32 ||
      embeddings->shape.rank() != 2 || !entries || entries->kind != metatensor::Kind::blob ||
      entries->count != static_cast<std::uint64_t>(embeddings->shape[0]))
    refuse("it has not the embeddings f32 [entries, width] and as many entries");
  const std::span<const std::byte> bytes = file.bytes("embeddings");
  const auto width = static_cast<std::size_t>(embeddings->shape[1]);
  std::vector<float> row(width);
  try {
    Store store(embeddings->shape[1]);
    for (std::uint64_t i = 0; i < entries->count; ++i) {
      std::memcpy(row.data(), bytes.data() + i * width * sizeof(float), width * sizeof(float));
      const std::span<const std::byte> text = file.bytes(fmt::format("entries.{}", i));
      const Value entry = Value::parse({reinterpret_cast<const char*>(text.data()), text.size()}, "an entry");
      const std::string& id = entry["id"].string();
      if (id.empty()) refuse(fmt::format("entry {} has no id", i));
      store.add({id, entry["namespace"].string(), entry["text"].string(), entry["metadata"]}, row);
      // The very bits that were stored.
      std::copy(row.begin(), row.end(), store.state_->row(i).begin());
    }
    return store;
  } catch (const UsageError& error) {
    throw FileError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

Value to_value(const Match& match) {
  return Value::object({{"id", match.entry.id},
                        {"namespace", match.entry.name_space},
                        {"text", match.entry.text},
                        {"metadata", match.entry.metadata},
                        {"similarity", match.similarity}});
}

}  // namespace weft::memory
