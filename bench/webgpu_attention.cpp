// Attention on a WebGPU device: microseconds and TFLOP/s of the block that Weft chooses and, with "all", of others; some
// rows of each result are compared with attention in double. Attention of f16 (names with "half") and of bf16 runs on subgroup
// matrices where the device has them; with "all" also with barriers in place of the order inside subgroups.
// Usage: bench_webgpu_attention [adapter index] [substring of a shape's name] [all]
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backend/webgpu/tested_facts.hpp"
#include "backend/webgpu/wgsl/attention.hpp"
#include "base/philox.hpp"
#include "figure.hpp"
#include "tensor/element.hpp"
#include "webgpu_timing.hpp"
#include "weft/error.hpp"

using namespace weft;
using namespace weft::webgpu;
using kernel::AttentionKernel;

namespace {

struct Problem {
  const char* name;
  Extent heads, kv_heads, positions, width;
  bool causal = true;
  Extent window = 0;
  DType type = DType::f32;
  /// A mask for all heads, or four sequences side by side, or dropped shares.
  enum class Extra { none, bools, added, sequences, dropout } extra = Extra::none;
  Extent few_queries = 0;  // the last ones, forward only; 0: as many as positions
  /// So many heads are side by side in rows, as a transformer's projection gives them with queries, keys and values beside one
  /// another; 0: each head is a matrix of its own.
  Extent beside = 0;

  Extent queries() const { return few_queries > 0 ? few_queries : positions; }
};

using Extra = Problem::Extra;
constexpr Extent kSequences = 4, kDropped = 26;
constexpr std::uint32_t kSeedWords[] = {12, 34};

constexpr Problem kShapes[] = {
    {"T1024 D64", 96, 96, 1024, 64},
    {"T256 D64", 384, 384, 256, 64},
    {"T1024 D128", 64, 64, 1024, 128},
    {"T8192 D64", 16, 16, 8192, 64},
    {"small T64 D32", 64, 64, 64, 32},
    {"T1024 full D64", 96, 96, 1024, 64, false},
    {"T1024 shared D128", 32, 8, 1024, 128},
    {"window T4096 D64", 32, 32, 4096, 64, true, 512},
    {"T512 D256", 32, 32, 512, 256},
    {"half T1024 D64", 96, 96, 1024, 64, true, 0, DType::f16},
    {"half T1024 full D64", 96, 96, 1024, 64, false, 0, DType::f16},
    {"half T256 D64", 384, 384, 256, 64, true, 0, DType::f16},
    {"half T8192 D64", 16, 16, 8192, 64, true, 0, DType::f16},
    {"half T1024 D128", 64, 64, 1024, 128, true, 0, DType::f16},
    {"half T1000 D64", 96, 96, 1000, 64, true, 0, DType::f16},
    {"half T1024 D80", 64, 64, 1024, 80, true, 0, DType::f16},
    {"half T1024 shared D128", 32, 8, 1024, 128, true, 0, DType::f16},
    {"half window T4096 D64", 32, 32, 4096, 64, true, 512, DType::f16},
    {"half T512 D256", 32, 32, 512, 256, true, 0, DType::f16},
    {"T1024 D64 bools", 96, 96, 1024, 64, true, 0, DType::f32, Extra::bools},
    {"T1024 D64 added", 96, 96, 1024, 64, true, 0, DType::f32, Extra::added},
    {"T1024 D64 sequences", 96, 96, 1024, 64, true, 0, DType::f32, Extra::sequences},
    {"T1024 D64 dropout", 96, 96, 1024, 64, true, 0, DType::f32, Extra::dropout},
    {"half T1024 D64 bools", 96, 96, 1024, 64, true, 0, DType::f16, Extra::bools},
    {"half T1024 D64 added", 96, 96, 1024, 64, true, 0, DType::f16, Extra::added},
    {"half T1024 D64 sequences", 96, 96, 1024, 64, true, 0, DType::f16, Extra::sequences},
    {"half T1024 D64 dropout", 96, 96, 1024, 64, true, 0, DType::f16, Extra::dropout},
    {"decode T4096 D128", 32, 8, 4096, 128, true, 0, DType::f32, Extra::none, 1},
    {"half decode T4096 D128", 32, 8, 4096, 128, true, 0, DType::f16, Extra::none, 1},
    {"half decode T16384 D64", 12, 12, 16384, 64, true, 0, DType::f16, Extra::none, 4},
    {"half T1000 D128 dropout", 64, 64, 1000, 128, true, 0, DType::f16, Extra::dropout},
    {"half T1024 D64 projected", 96, 96, 1024, 64, true, 0, DType::f16, Extra::none, 0, 12},
    {"half T256 D64 projected", 384, 384, 256, 64, true, 0, DType::f16, Extra::none, 0, 6},
    {"bf16 T1024 D64", 96, 96, 1024, 64, true, 0, DType::bf16},
    {"bf16 T1024 full D64", 96, 96, 1024, 64, false, 0, DType::bf16},
    {"bf16 T256 D64", 384, 384, 256, 64, true, 0, DType::bf16},
    {"bf16 T8192 D64", 16, 16, 8192, 64, true, 0, DType::bf16},
    {"bf16 T1024 D128", 64, 64, 1024, 128, true, 0, DType::bf16},
    {"bf16 T1024 shared D128", 32, 8, 1024, 128, true, 0, DType::bf16},
    {"bf16 T512 D256", 32, 32, 512, 256, true, 0, DType::bf16},
    {"bf16 T1024 D64 dropout", 96, 96, 1024, 64, true, 0, DType::bf16, Extra::dropout},
    {"bf16 T1024 D64 added", 96, 96, 1024, 64, true, 0, DType::bf16, Extra::added},
};

constexpr AttentionBlock kOthers[] = {
    {4, 8, 4, 3, true},  {4, 8, 4, 3, false}, {4, 8, 4, 2, true},  {4, 8, 4, 2, false}, {4, 8, 2, 3, true},
    {4, 8, 2, 3, false}, {4, 8, 8, 2, true},  {4, 8, 8, 2, false}, {2, 8, 4, 3, true},  {2, 8, 4, 3, false},
    {2, 8, 8, 3, true},  {2, 8, 8, 3, false}, {2, 8, 4, 2, false}, {4, 4, 4, 3, true},  {4, 4, 4, 3, false},
    {4, 4, 2, 3, false}, {2, 4, 2, 3, false}, {1, 8, 8, 3, true},  {1, 8, 8, 3, false}, {1, 8, 4, 3, false},
};

struct MatrixTrial {
  const char* name;
  Extent width_least, width_most;
  MatrixAttentionBlocks blocks;
};

// Forward, dQ, dK and dV: rows of a subgroup, subgroups, rows of a tile, interleaved.
constexpr MatrixTrial kMatrixTrials[] = {
    {"32x4 32 | 4 32 seq | 8 64", 8, 64, {{32, 4, 32}, {16, 4, 32, false}, {16, 8, 64, true}}},
    {"32x8 64 | 16 64 seq | 8 32", 8, 64, {{32, 8, 64}, {16, 16, 64, false}, {16, 8, 32, true}}},
    {"32x8 32 | 8 32 seq | 4 32", 8, 64, {{32, 8, 32}, {16, 8, 32, false}, {16, 4, 32, true}}},
    {"32x4 64 | 4 32 | 8 64 seq", 8, 64, {{32, 4, 64}, {16, 4, 32, true}, {16, 8, 64, false}}},
    {"16x8 32 | 8 64 | 8 32 seq", 8, 64, {{16, 8, 32}, {16, 8, 64, true}, {16, 8, 32, false}}},
    {"16x8 64 | 8 64 seq | 4 64", 8, 64, {{16, 8, 64}, {16, 8, 64, false}, {16, 4, 64, true}}},
    {"16x4 32 | 4 64 seq | 4 64 seq", 8, 64, {{16, 4, 32}, {16, 4, 64, false}, {16, 4, 64, false}}},
    {"16x8 64 | 8 32 | 8 32", 65, 128, {{16, 8, 64}, {16, 8, 32, true}, {16, 8, 32, true}}},
    {"16x8 32 | 4 32 | 4 32", 65, 128, {{16, 8, 32}, {16, 4, 32, true}, {16, 4, 32, true}}},
    {"16x4 32 | 8 32 seq | 8 32 seq", 65, 128, {{16, 4, 32}, {16, 8, 32, false}, {16, 8, 32, false}}},
    {"32x4 32 | 4 32 seq | 4 32 seq", 65, 128, {{32, 4, 32}, {16, 4, 32, false}, {16, 4, 32, false}}},
    {"16x4 64 | 8 64 seq | 8 64 seq", 65, 128, {{16, 4, 64}, {16, 8, 64, false}, {16, 8, 64, false}}},
    {"16x4 32 | 4 16 in 2 | 4 16 in 4", 129, 256, {{16, 4, 32}, {16, 4, 16, false, 2}, {16, 4, 16, false, 4}}},
    {"16x8 32 | 4 32 in 2 | 4 32 in 4", 129, 256, {{16, 8, 32}, {16, 4, 32, false, 2}, {16, 4, 32, false, 4}}},
    {"16x4 16 | 8 16 | 8 16 in 2", 129, 256, {{16, 4, 16}, {16, 8, 16, false}, {16, 8, 16, false, 2}}},
    {"16x8 16 | 8 16 in 4 | 8 16 in 8", 129, 256, {{16, 8, 16}, {16, 8, 16, false, 4}, {16, 8, 16, false, 8}}},
    {"16x8 16 | 8 32 in 2 | 8 32 in 4", 129, 256, {{16, 8, 16}, {16, 8, 32, false, 2}, {16, 8, 32, false, 4}}},
    {"16x8 16 | 2 32 in 2 | 2 32 in 2", 129, 256, {{16, 8, 16}, {16, 2, 32, false, 2}, {16, 2, 32, false, 2}}},
};

enum { kQ, kK, kV, kO, kDO, kDQ, kDK, kDV, kLogsumexp, kMask, kKeySpans, kQuerySpans, kSeed, kBuffers };

bool is_of_keys(int buffer) { return buffer == kK || buffer == kV || buffer == kDK || buffer == kDV; }

struct Strides {
  Extent batch, head, row;
};
Strides strides_of(const Problem& shape, int buffer) {
  const Extent rows = is_of_keys(buffer) ? shape.positions : shape.queries();
  if (shape.beside == 0) return {0, rows * shape.width, shape.width};
  const Extent row = (buffer == kO || buffer == kDO ? 1 : 3) * shape.beside * shape.width;
  return {rows * row, shape.width, row};
}
/// Where row `at` of a head begins.
Extent place_of(const Problem& shape, int buffer, Extent head, Extent at) {
  const Strides s = strides_of(shape, buffer);
  const Extent together = shape.beside == 0 ? shape.heads : shape.beside;
  return head / together * s.batch + head % together * s.head + at * s.row;
}

Extent count_of(const Problem& shape, int buffer) {
  const Strides s = strides_of(shape, buffer);
  if (shape.beside > 0) return shape.heads / shape.beside * s.batch;
  return (is_of_keys(buffer) ? shape.kv_heads : shape.heads) * s.head;
}

AttentionKernel attention(const Problem& shape, bool backward) {
  const Extent together = shape.beside == 0 ? shape.heads : shape.beside;
  AttentionKernel kernel{.name = "attention",
                         .batch = shape.heads / together,
                         .heads = together,
                         .queries = shape.queries(),
                         .keys = shape.positions,
                         .width = shape.width,
                         .kv_heads = shape.beside == 0 ? shape.kv_heads : together,
                         .scale = 1 / std::sqrt(static_cast<double>(shape.width)),
                         .shift = shape.positions - shape.queries(),
                         .causal = shape.causal,
                         .window = shape.window};
  kernel.backward = backward;
  const auto tensor = [&](int buffer) {
    const Strides s = strides_of(shape, buffer);
    return AttentionKernel::Tensor{{buffer, shape.type, 0, count_of(shape, buffer)}, s.batch, s.head, s.row};
  };
  kernel.q = tensor(kQ), kernel.k = tensor(kK), kernel.v = tensor(kV);
  kernel.o = tensor(kO), kernel.d_o = tensor(kDO);
  kernel.d_q = tensor(kDQ), kernel.d_k = tensor(kDK), kernel.d_v = tensor(kDV);
  kernel.logsumexp = {kLogsumexp, DType::f32, 0, shape.heads * shape.queries()};
  const Extent t = shape.positions;
  if (shape.extra == Extra::bools || shape.extra == Extra::added)
    kernel.mask = {{kMask, shape.extra == Extra::bools ? DType::boolean : DType::f32, 0, t * t}, 0, 0, t, 1};
  if (shape.extra == Extra::sequences) {
    kernel.key_spans = {kKeySpans, DType::i32, 0, 2 * t};
    kernel.query_spans = {kQuerySpans, DType::i32, 0, 2 * t};
  }
  if (shape.extra == Extra::dropout) {
    kernel.dropped = kDropped;
    kernel.seed = {kSeed, DType::u32, 0, 2};
  }
  return kernel;
}

/// The first and the end of the sequence of a position.
Extent sequence_edge(const Problem& shape, Extent position, Extent more) {
  const Extent each = (shape.positions + kSequences - 1) / kSequences;
  return std::min(shape.positions, (position / each + more) * each);
}

/// The mask's values, of which every eighth hides, and the spans.
std::vector<float> upload_extras(const Problem& shape, const std::vector<std::shared_ptr<Buffer>>& buffers) {
  const auto upload = [&](int b, const auto& values) {
    buffers[static_cast<std::size_t>(b)]->upload(0, values.data(), values.size() * 4);
  };
  std::vector<float> mask;
  const Extent t = shape.positions;
  if (shape.extra == Extra::bools || shape.extra == Extra::added) {
    std::minstd_rand random(5);
    for (Extent i = 0; i < t * t; ++i)
      mask.push_back(random() % 8 == 0             ? -3e38f
                     : shape.extra == Extra::bools ? 0.0f
                                                   : static_cast<float>(random() % 100) * 0.02f);
    std::vector<std::uint32_t> words;
    for (const float x : mask)
      words.push_back(shape.extra == Extra::bools ? x == 0.0f : std::bit_cast<std::uint32_t>(x));
    upload(kMask, words);
  }
  std::vector<std::int32_t> keys, queries;
  for (Extent i = 0; i < t; ++i) {  // causality is in them, as in the public op
    const Extent first = sequence_edge(shape, i, 0), end = sequence_edge(shape, i, 1);
    for (const Extent x : {first, i + 1}) keys.push_back(static_cast<std::int32_t>(x));
    for (const Extent x : {i, end}) queries.push_back(static_cast<std::int32_t>(x));
  }
  upload(kKeySpans, keys);
  upload(kQuerySpans, queries);
  upload(kSeed, std::vector<std::uint32_t>(std::begin(kSeedWords), std::end(kSeedWords)));
  return mask;
}

/// Pairs of a query and a key that see each other, in one head.
double pairs(const Problem& shape) {
  const auto t = static_cast<double>(shape.positions), w = static_cast<double>(shape.window);
  if (shape.extra == Extra::sequences) return t * t / 2 / kSequences;
  if (shape.few_queries > 0) return t * static_cast<double>(shape.few_queries);
  if (!shape.causal) return t * t;
  return shape.window > 0 ? w * t - w * w / 2 : t * t / 2;
}

/// The tensors on the host, and some of their rows computed again in double.
class Judge {
 public:
  Judge(const Problem& shape, const std::vector<std::shared_ptr<Buffer>>& buffers, const std::vector<Extent>& counts,
        std::vector<float> mask)
      : shape_(shape), buffers_(buffers), host_(kBuffers), mask_(std::move(mask)) {
    for (std::size_t b = 0; b < kBuffers; ++b) host_[b].resize(static_cast<std::size_t>(counts[b]));
    for (const int b : {kQ, kK, kV, kDO}) download(b);
  }
  void download(int b) {
    auto& host = host_[static_cast<std::size_t>(b)];
    const DType type = b == kLogsumexp ? DType::f32 : shape_.type;
    std::vector<unsigned char> bytes(bytes_of(type, host.size()));
    buffers_[static_cast<std::size_t>(b)]->download(0, bytes.data(), bytes.size());
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(read_element(type, bytes.data(), i));
  }

  /// Largest error over the size of such results (the largest in the row, or 1 where all are smaller: sums of values of
  /// about 1 whose terms cancel), over some rows of the results.
  double worst(bool backward) {
    for (const int b : {kO, kLogsumexp, kDQ, kDK, kDV}) download(b);
    std::minstd_rand random(7);
    double most = 0;
    for (int n = 0; n < 6; ++n) {
      const Extent head = random() % shape_.heads;
      // Edges of blocks first, then anywhere.
      const Extent rows = shape_.queries(), row = n == 0 ? 0 : n == 1 ? rows - 1 : random() % rows;
      most = std::max(most, backward ? worst_of_query(head, row, true) : worst_of_query(head, row, false));
      if (backward) most = std::max(most, worst_of_key(head / members(), row));
    }
    return most;
  }

 private:
  Extent members() const { return shape_.heads / shape_.kv_heads; }
  const float* row(int buffer, Extent head, Extent at) const {
    return &host_[static_cast<std::size_t>(buffer)][static_cast<std::size_t>(place_of(shape_, buffer, head, at))];
  }
  double dot(const float* a, const float* b) const {
    double sum = 0;
    for (Extent c = 0; c < shape_.width; ++c) sum += static_cast<double>(a[c]) * b[c];
    return sum;
  }
  bool sees(Extent i, Extent j) const {
    return (!shape_.causal || j <= i + shape_.positions - shape_.queries()) &&
           (shape_.window == 0 || j > i - shape_.window) && bias(i, j) > -1e30 &&
           (shape_.extra != Extra::sequences || j >= sequence_edge(shape_, i, 0));
  }
  double bias(Extent i, Extent j) const {
    return mask_.empty() ? 0 : mask_[static_cast<std::size_t>(i * shape_.positions + j)];
  }
  /// The factor of a share that may be dropped.
  double kept(Extent head, Extent i, Extent j) const {
    if (shape_.extra != Extra::dropout) return 1;
    const Extent half = (shape_.positions + 1) / 2;
    const auto word = static_cast<std::uint32_t>((head * half + i / 2) * half + j / 2);
    const std::uint32_t byte =
        philox::block({kSeedWords[0], kSeedWords[1]}, {word, 0, 0, 0})[0] >> (i % 2 * 16 + j % 2 * 8) & 255;
    return byte < kDropped ? 0 : 256.0 / (256 - kDropped);
  }
  double score(Extent head, Extent i, Extent j) const {
    return dot(row(kQ, head, i), row(kK, head / members(), j)) / std::sqrt(static_cast<double>(shape_.width)) +
           bias(i, j);
  }
  double compare(const std::vector<double>& wanted, const float* got) const {
    double size = 1, error = 0;
    for (std::size_t c = 0; c < wanted.size(); ++c) {
      size = std::max(size, std::abs(wanted[c]));
      const double off = std::abs(wanted[c] - static_cast<double>(got[c]));
      error = std::max(error, std::isnan(off) ? 1e9 : off);
    }
    return error / size;
  }

  double worst_of_query(Extent head, Extent i, bool backward) const {
    const auto width = static_cast<std::size_t>(shape_.width);
    std::vector<double> p(static_cast<std::size_t>(shape_.positions)), o(width), d_q(width);
    double total = 0;
    for (Extent j = 0; j < shape_.positions; ++j)
      if (sees(i, j)) total += p[static_cast<std::size_t>(j)] = std::exp(score(head, i, j));
    for (Extent j = 0; j < shape_.positions; ++j)
      for (std::size_t c = 0; c < width; ++c)
        o[c] += p[static_cast<std::size_t>(j)] / total * kept(head, i, j) *
                static_cast<double>(row(kV, head / members(), j)[c]);
    if (!backward) {
      const double log_sum = host_[kLogsumexp][static_cast<std::size_t>(head * shape_.queries() + i)] - std::log(total);
      return std::max(compare(o, row(kO, head, i)), std::abs(log_sum));
    }
    const double delta = dot(row(kDO, head, i), row(kO, head, i));
    for (Extent j = 0; j < shape_.positions; ++j) {
      if (!sees(i, j)) continue;
      const double slope = p[static_cast<std::size_t>(j)] / total *
                           (dot(row(kDO, head, i), row(kV, head / members(), j)) * kept(head, i, j) - delta) /
                           std::sqrt(static_cast<double>(shape_.width));
      for (std::size_t c = 0; c < width; ++c) d_q[c] += slope * static_cast<double>(row(kK, head / members(), j)[c]);
    }
    return compare(d_q, row(kDQ, head, i));
  }

  // The logsumexp is the device's own, which the forward kernel's check has compared.
  double worst_of_key(Extent kv_head, Extent j) const {
    const auto width = static_cast<std::size_t>(shape_.width);
    std::vector<double> d_k(width), d_v(width);
    for (Extent head = kv_head * members(); head < (kv_head + 1) * members(); ++head)
      for (Extent i = 0; i < shape_.positions; ++i) {
        if (!sees(i, j)) continue;
        const double log_sum = host_[kLogsumexp][static_cast<std::size_t>(head * shape_.positions + i)];
        const double p = std::exp(score(head, i, j) - log_sum);
        const double factor = kept(head, i, j);
        const double slope =
            p * (dot(row(kDO, head, i), row(kV, kv_head, j)) * factor - dot(row(kDO, head, i), row(kO, head, i))) /
            std::sqrt(static_cast<double>(shape_.width));
        for (std::size_t c = 0; c < width; ++c) {
          d_v[c] += p * factor * static_cast<double>(row(kDO, head, i)[c]);
          d_k[c] += slope * static_cast<double>(row(kQ, head, i)[c]);
        }
      }
    return std::max(compare(d_k, row(kDK, kv_head, j)), compare(d_v, row(kDV, kv_head, j)));
  }

  const Problem& shape_;
  const std::vector<std::shared_ptr<Buffer>>& buffers_;
  std::vector<std::vector<float>> host_;
  std::vector<float> mask_;
};

/// Rounds what make_buffers has drawn to f16 or bf16, which fill a half of each buffer.
void round_to(DType type, const std::vector<std::shared_ptr<Buffer>>& buffers, const std::vector<Extent>& counts) {
  for (const int b : {kQ, kK, kV, kDO}) {
    std::vector<float> drawn(static_cast<std::size_t>(counts[static_cast<std::size_t>(b)]));
    Buffer& buffer = *buffers[static_cast<std::size_t>(b)];
    buffer.download(0, drawn.data(), drawn.size() * 4);
    std::vector<unsigned char> halves(bytes_of(type, drawn.size()));
    // Scores of such numbers are as steep as those of a trained model.
    for (std::size_t i = 0; i < drawn.size(); ++i) write_element(type, 1.7 * drawn[i], halves.data(), i);
    buffer.upload(0, halves.data(), halves.size());
  }
}

std::string name_of_block(const AttentionBlock& b) {
  return fmt::format("{} rows x {}, {} a thread, {} slabs{}", b.rows(), b.tile(), b.lane_rows, b.buffers,
                     b.ahead ? ", ahead" : "");
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = Device::open(argc > 1 ? std::atoi(argv[1]) : -1, {.validate = false, .robust = false});
  Target target = target_of(device->info());
  target.tested = test_facts(device);
  const bool all = argc > 3 && std::strcmp(argv[3], "all") == 0;
  fmt::print("{}\n{}", describe(device->info()), facts_text(target.tested));
  Target strict = target;
  strict.tested.ordered_subgroups = false;
  for (const Problem& shape : kShapes) {
    if (argc > 2 && !std::strstr(shape.name, argv[2])) continue;
    const Extent t = shape.positions;
    std::vector<Extent> counts;
    for (int b = kQ; b <= kDV; ++b) counts.push_back(count_of(shape, b));
    counts.insert(counts.end(), {shape.heads * t, shape.extra == Extra::none ? 4 : t * t, 2 * t, 2 * t, 4});
    const auto buffers = bench::make_buffers(device, counts);
    if (shape.type != DType::f32) round_to(shape.type, buffers, counts);
    Judge judge(shape, buffers, counts, upload_extras(shape, buffers));
    struct Trial {
      std::string name;
      bool backward;
      Rendered rendered;
    };
    std::vector<Trial> trials;
    const auto add = [&](const std::string& name, bool backward, const AttentionBlock* block) {
      Rendered rendered;
      Scratch scratch(kBuffers, rendered);
      render(attention(shape, backward), target, scratch, rendered, block);
      trials.push_back({name, backward, std::move(rendered)});
    };
    for (const bool backward : {false, true}) {
      if (backward && shape.few_queries > 0) continue;
      const auto add_matrices = [&](const std::string& name, const MatrixAttentionBlocks& blocks, const Target& on) {
        Rendered rendered;
        Scratch scratch(kBuffers, rendered);
        if (render_on_matrices(attention(shape, backward), blocks, on, scratch, rendered))
          trials.push_back({name, backward, std::move(rendered)});
      };
      if (all && shape.type != DType::f32 && target.matrices()) {
        add_matrices("with barriers", choose_matrix_blocks(attention(shape, backward), strict), strict);
        for (const MatrixTrial& trial : kMatrixTrials)
          if (shape.width >= trial.width_least && shape.width <= trial.width_most)
            add_matrices(trial.name, trial.blocks, target);
      } else if (all)
        for (const AttentionBlock& block : kOthers)
          if (is_possible(attention(shape, backward), target, block)) add(name_of_block(block), backward, &block);
      add("* chosen", backward, nullptr);  // measured when the device has woken up
    }
    Recording shaders;  // compiles everything side by side
    for (const Trial& trial : trials) {
      Recording one = bench::record(device, buffers, trial.rendered, 0);
      shaders.shaders.insert(shaders.shaders.end(), one.shaders.begin(), one.shaders.end());
    }
    try {
      const CommandSequence compiled(device, std::move(shaders));
    } catch (const Error& error) {
      fmt::print("{}: {}\n", shape.name, error.what());  // the one that fails says so again
    }
    for (const Trial& trial : trials) try {
        const double us = bench::microseconds(device, buffers, trial.rendered);
        const double error = judge.worst(trial.backward);  // before parts of it run alone
        const double flops = (trial.backward ? 10 : 4) * pairs(shape) * static_cast<double>(shape.heads * shape.width);
        std::string parts;
        if (trial.rendered.dispatches.size() > 1)
          for (const RenderedDispatch& dispatch : trial.rendered.dispatches) {
            Rendered one;
            one.scratch_bytes = trial.rendered.scratch_bytes;
            one.dispatches = {dispatch};
            parts += fmt::format(" {:8.1f}", bench::microseconds(device, buffers, one));
          }
        fmt::print("{:<24} {:<9} {:<34} {:9.1f} us {:6.2f} TFLOP/s  error {:.0e} {}\n", shape.name,
                   trial.backward ? "backward" : "forward", trial.name, us, flops / us * 1e-6, error, parts);
        std::fflush(stdout);
        if (trial.name == "* chosen")
          figures::keep({"attention on a GPU",
                         fmt::format("{}, {}", shape.name, trial.backward ? "backward" : "forward"), "TFLOP/s",
                         flops / us * 1e-6, "", 0, describe(device->info())});
      } catch (const Error& error) {
        fmt::print("{:<24} {:<9} {:<34} {}\n", shape.name, trial.backward ? "backward" : "forward", trial.name,
                   error.what());
      }
  }
}
