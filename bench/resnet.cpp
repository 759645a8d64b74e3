// The convolutions of ResNet-18 on the CPU, forward and both gradients, Weft beside oneDNN on the same threads: milliseconds,
// the best of interleaved rounds.
//
//   bench_resnet [--rounds N] [--images N] [--only LAYER]
//
// Weft reads and writes [images, channels, y, x]. oneDNN is measured twice: on tensors that are already in the blocked layout
// that it likes best, and from and to Weft's layout, with the conversions that this takes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "figure.hpp"
#include "peers.hpp"
#include "weft/weft.hpp"

#ifdef WEFT_HAS_DNNL
#include <dnnl.hpp>
#endif

using namespace weft;

namespace {

using Clock = std::chrono::steady_clock;

struct Layer {
  const char* name;
  Extent channels, extent, out, size, stride, padding;
  Extent windows() const { return (extent + 2 * padding - size) / stride + 1; }
};

constexpr Layer kLayers[] = {
    {"stem", 3, 224, 64, 7, 2, 3},
    {"stage 1", 64, 56, 64, 3, 1, 1},
    {"stage 2, first", 64, 56, 128, 3, 2, 1},
    {"stage 2, side", 64, 56, 128, 1, 2, 0},
    {"stage 2", 128, 28, 128, 3, 1, 1},
    {"stage 3, first", 128, 28, 256, 3, 2, 1},
    {"stage 3, side", 128, 28, 256, 1, 2, 0},
    {"stage 3", 256, 14, 256, 3, 1, 1},
    {"stage 4, first", 256, 14, 512, 3, 2, 1},
    {"stage 4, side", 256, 14, 512, 1, 2, 0},
    {"stage 4", 512, 7, 512, 3, 1, 1},
};
constexpr const char* kDirections[] = {"forward", "gradient of x", "gradient of the weights"};

using Call = std::function<void()>;

/// The three directions of a layer: calls, and where they leave their results in Weft's layout.
struct Contestant {
  std::vector<Call> calls;
  std::function<std::vector<float>(std::size_t)> result;
};

Contestant of_weft(const Layer& layer, const Tensor& x, const Tensor& w, const Tensor& g) {
  const ConvolutionOptions options{.stride = layer.stride, .padding = layer.padding};
  auto forward = compile([=](Tensor image, Tensor weight) { return conv2d(image, weight, {}, options); });
  auto d_x = compile([=](Tensor image, Tensor weight, Tensor seed) {
    return grad(conv2d(image, weight, {}, options), {image}, seed)[0];
  });
  auto d_w = compile([=](Tensor image, Tensor weight, Tensor seed) {
    return grad(conv2d(image, weight, {}, options), {weight}, seed)[0];
  });
  Contestant weft;
  weft.calls = {[=]() mutable { forward(x, w).eval(); }, [=]() mutable { d_x(x, w, g).eval(); },
                [=]() mutable { d_w(x, w, g).eval(); }};
  weft.result = [=](std::size_t direction) mutable {
    return (direction == 0 ? forward(x, w) : direction == 1 ? d_x(x, w, g) : d_w(x, w, g)).to_vector<float>();
  };
  return weft;
}

#ifdef WEFT_HAS_DNNL
/// `converts`: each call converts its operands from Weft's layout, and its result back to it.
Contestant of_onednn(const Layer& layer, const Tensor& x, const Tensor& w, const Tensor& g, bool converts) {
  using dnnl::memory;
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  const auto shape_of = [](const Tensor& t) { return memory::dims{t.dim(0), t.dim(1), t.dim(2), t.dim(3)}; };
  const auto any = [&](const Tensor& t) {
    return memory::desc(shape_of(t), memory::data_type::f32, memory::format_tag::any);
  };
  const auto plain = [&](const Tensor& t) {
    return memory::desc(shape_of(t), memory::data_type::f32, memory::format_tag::nchw);
  };
  const memory::dims strides{layer.stride, layer.stride}, padding{layer.padding, layer.padding};
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, kDirect, any(x), any(w), any(g), strides, padding, padding}, engine);
  const dnnl::convolution_backward_data::primitive_desc d_x(
      {kDirect, any(x), any(w), any(g), strides, padding, padding}, engine, forward);
  const dnnl::convolution_backward_weights::primitive_desc d_w(
      {kDirect, any(x), any(w), any(g), strides, padding, padding}, engine, forward);

  struct Operand {
    int slot;
    const Tensor& like;
    memory::desc desc;
  };
  struct Direction {
    dnnl::primitive primitive;
    std::vector<Operand> operands;  // the result is the last
  };
  const Direction directions[] = {{dnnl::convolution_forward(forward),
                                   {{DNNL_ARG_SRC, x, forward.src_desc()},
                                    {DNNL_ARG_WEIGHTS, w, forward.weights_desc()},
                                    {DNNL_ARG_DST, g, forward.dst_desc()}}},
                                  {dnnl::convolution_backward_data(d_x),
                                   {{DNNL_ARG_DIFF_DST, g, d_x.diff_dst_desc()},
                                    {DNNL_ARG_WEIGHTS, w, d_x.weights_desc()},
                                    {DNNL_ARG_DIFF_SRC, x, d_x.diff_src_desc()}}},
                                  {dnnl::convolution_backward_weights(d_w),
                                   {{DNNL_ARG_SRC, x, d_w.src_desc()},
                                    {DNNL_ARG_DIFF_DST, g, d_w.diff_dst_desc()},
                                    {DNNL_ARG_DIFF_WEIGHTS, w, d_w.diff_weights_desc()}}}};
  Contestant peer;
  std::vector<std::pair<memory, std::vector<memory>>> results;  // in its layout, and the same in Weft's
  for (const Direction& direction : directions) {
    std::unordered_map<int, memory> arguments;
    std::vector<std::pair<memory, memory>> before;
    for (const Operand& o : direction.operands) {
      memory given(plain(o.like), engine), liked(o.desc, engine);
      const std::vector<float> values = o.like.to_vector<float>();
      std::copy(values.begin(), values.end(), static_cast<float*>(given.get_data_handle()));
      dnnl::reorder(given, liked).execute(stream, given, liked);
      arguments.emplace(o.slot, liked);
      if (&o != &direction.operands.back())
        before.emplace_back(given, liked);
      else
        results.push_back({liked, {given}});
    }
    std::vector<std::pair<dnnl::reorder, std::pair<memory, memory>>> conversions;
    for (auto& [from, to] : before)
      if (converts && from.get_desc() != to.get_desc()) conversions.push_back({dnnl::reorder(from, to), {from, to}});
    auto& [liked, given] = results.back();
    const dnnl::reorder back(liked, given[0]);
    const bool converts_back = converts && liked.get_desc() != given[0].get_desc();
    peer.calls.push_back([primitive = direction.primitive, arguments, conversions, back, converts_back, from = liked,
                          to = given[0]]() mutable {
      for (auto& [reorder, operands] : conversions) reorder.execute(stream, operands.first, operands.second);
      primitive.execute(stream, arguments);
      if (converts_back) back.execute(stream, from, to);
      stream.wait();
    });
  }
  peer.result = [results](std::size_t direction) mutable {
    auto& [liked, given] = results[direction];
    dnnl::reorder(liked, given[0]).execute(stream, liked, given[0]);
    stream.wait();
    const float* values = static_cast<const float*>(given[0].get_data_handle());
    return std::vector<float>(values, values + given[0].get_desc().get_size() / sizeof(float));
  };
  return peer;
}
#endif

double best_ms(const Call& call) {
  std::this_thread::sleep_for(std::chrono::milliseconds(15));  // until the threads of the one before are asleep
  call();
  double best = 1e30, spent = 0;
  for (int times = 0; times < 2 || (spent < 20 && times < 50); ++times) {
    const auto start = Clock::now();
    call();
    const double now = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    best = std::min(best, now);
    spent += now;
  }
  return best;
}

/// The largest difference, in units of the root mean square of `ours`.
double difference(const std::vector<float>& ours, const std::vector<float>& theirs) {
  double largest = 0, squares = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(ours[i]) - theirs[i]));
    squares += static_cast<double>(ours[i]) * ours[i];
  }
  return largest / std::sqrt(squares / static_cast<double>(ours.size()));
}

void measure(const Layer& layer, Extent images, int rounds) {
  const Extent windows = layer.windows();
  const Tensor x = randn({images, layer.channels, layer.extent, layer.extent}).eval();
  const Tensor w = randn({layer.out, layer.channels, layer.size, layer.size}).eval();
  const Tensor g = randn({images, layer.out, windows, windows}).eval();
  std::vector<Contestant> contestants{of_weft(layer, x, w, g)};
  std::vector<std::string> peers{""};
#ifdef WEFT_HAS_DNNL
  for (const bool converts : {false, true}) {
    contestants.push_back(of_onednn(layer, x, w, g, converts));
    peers.push_back(figures::onednn_name() + (converts ? ", from and to this layout" : ""));
  }
#endif
  const double flops = 2.0 * static_cast<double>(g.numel() * layer.channels * layer.size * layer.size);
  const std::string shape = fmt::format("[{}, {}, {}, {}] to {} channels by {} x {}, stride {}", images, layer.channels,
                                        layer.extent, layer.extent, layer.out, layer.size, layer.size, layer.stride);
  fmt::print("{}: {}\n", layer.name, shape);
  for (std::size_t direction = 0; direction < 3; ++direction) {
    for (std::size_t who = 1; who < contestants.size(); ++who) {
      contestants[who].calls[direction]();
      const double off = difference(contestants[0].result(direction), contestants[who].result(direction));
      if (!(off < 1e-4)) {
        fmt::print(stderr, "{}, {}: results differ by {}\n", layer.name, kDirections[direction], off);
        std::exit(1);
      }
    }
    std::vector<double> best(contestants.size(), 1e30);
    for (int round = 0; round < rounds; ++round)
      for (std::size_t who = 0; who < contestants.size(); ++who)
        best[who] = std::min(best[who], best_ms(contestants[who].calls[direction]));
    fmt::print("  {:<24} {:8.3f} ms ({:5.1f} GFLOP/s)", kDirections[direction], best[0], flops / best[0] / 1e6);
    for (std::size_t who = 1; who < best.size(); ++who) {
      fmt::print("  {} {:8.3f} ms, ratio {:.2f}", peers[who], best[who], best[who] / best[0]);
      figures::keep(
          {"convolutions of ResNet-18", shape + ", " + kDirections[direction], "ms", best[0], peers[who], best[who]});
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 3;
  Extent images = 8;
  std::string_view only;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (value && option == "--rounds") {
      rounds = std::atoi(value);
    } else if (value && option == "--images") {
      images = std::atoi(value);
    } else if (value && option == "--only") {
      only = value;
    } else {
      fmt::print(stderr, "usage: bench_resnet [--rounds N] [--images N] [--only LAYER]\n");
      return 2;
    }
  }
  set_default_device(kCpu);
  figures::spread_openmp_threads();
  for (const Layer& layer : kLayers)
    if (only.empty() || std::string_view(layer.name).starts_with(only)) measure(layer, images, rounds);
}
