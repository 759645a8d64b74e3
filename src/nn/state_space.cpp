#include "weft/nn/state_space.hpp"

#include <fmt/format.h>

#include <cmath>

#include "weft/ops.hpp"

namespace weft::nn {
namespace {

constexpr double kLargestRate = 16;  // at first

/// The bias for which softplus gives dt.
double inverse_softplus(double dt) { return std::log(std::expm1(dt)); }

Extent channels_inside(Extent width, const Mamba2Options& o) {
  for (const auto& [what, value] : {std::pair("width", width),
                                    {"states", o.states},
                                    {"head width", o.head_width},
                                    {"expand", o.expand},
                                    {"groups", o.groups},
                                    {"kernel", o.kernel},
                                    {"chunk", o.chunk}})
    if (value < 1) throw ShapeError(fmt::format("mamba2: {} is {}; it must be at least 1", what, value));
  const Extent inner = o.expand * width;
  if (inner % o.head_width != 0)
    throw ShapeError(
        fmt::format("mamba2: heads of {} channels do not divide the {} channels inside", o.head_width, inner));
  if (inner / o.head_width % o.groups != 0)
    throw ShapeError(fmt::format("mamba2: {} groups do not divide {} heads", o.groups, inner / o.head_width));
  if (!(o.dt_least > 0 && o.dt_least <= o.dt_most && std::isfinite(o.dt_most)))
    throw UsageError(
        fmt::format("mamba2: steps from {} to {}; give two numbers above 0, the smaller first", o.dt_least, o.dt_most));
  return inner;
}

}  // namespace

Mamba2::Kernel::Kernel(Extent channels, Extent size)
    : weight(parameter("weight", {channels, 1, size}, Init::kaiming_uniform(size))),
      bias(parameter("bias", {channels}, Init::kaiming_uniform(size))) {}

Mamba2::Mamba2(Extent width, Mamba2Options options)
    : width_(width),
      options_(options),
      inner_(channels_inside(width, options)),
      heads_(inner_ / options.head_width),
      in_(width, 2 * inner_ + 2 * options.groups * options.states + heads_, {.bias = false}),
      out_(inner_, width, {.bias = false}),
      kernel_(inner_ + 2 * options.groups * options.states, options.kernel),
      norm_(inner_, options.norm_eps),
      dt_bias_(parameter("dt_bias", {heads_},
                         Init::uniform(inverse_softplus(options.dt_least), inverse_softplus(options.dt_most)))),
      a_log_(parameter("A_log", {heads_}, Init::uniform(0, std::log(kLargestRate)))),
      d_(parameter("D", {heads_}, Init::ones())) {
  add("in_proj", in_);
  add("conv1d", kernel_);
  add("norm", norm_);
  add("out_proj", out_);
}

Tensor Mamba2::operator()(const Tensor& u, Mamba2State* state, Where where) const {
  if (u.rank() != 3 || u.dim(1) < 1 || u.dim(2) != width_)
    throw ShapeError(
        fmt::format("mamba2: u {} is not [batch, steps, {}] with at least one step", u.shape().to_string(), width_));
  const Extent batch = u.dim(0), steps = u.dim(1), shared = options_.groups * options_.states;
  const Tensor all = in_(u, where);
  Extent at = 0;
  const auto part = [&](const Tensor& from, Extent count) {
    return narrow(from, -1, std::exchange(at, at + count), count);
  };
  const Tensor z = part(all, inner_), xbc = part(all, inner_ + 2 * shared), d = part(all, heads_);
  const ShortConvolution convolved =
      short_convolution(xbc, select(Tensor(kernel_.weight), 1, 0), kernel_.bias, state ? state->convolution : Tensor());
  const Tensor h = elementwise("silu", {convolved.output});
  at = 0;
  const Tensor x = reshape(part(h, inner_), {batch, steps, heads_, options_.head_width});
  const Shape grouped{batch, steps, options_.groups, options_.states};
  const Tensor b = reshape(part(h, shared), grouped), c = reshape(part(h, shared), grouped);
  const Tensor dt = elementwise("softplus", {d + Tensor(dt_bias_)});
  const StateSpaceScan scanned =
      state_space_scan(x, dt, -exp(Tensor(a_log_)), b, c, state ? state->scan : Tensor(), options_.chunk, where);
  if (state) *state = {convolved.state, scanned.state};
  const Tensor y = reshape(scanned.output + x * reshape(Tensor(d_), {heads_, 1}), {batch, steps, inner_});
  return out_(norm_(y * elementwise("silu", {z}), where), where);
}

std::string Mamba2::describe() const {
  return fmt::format("Mamba2 {}: {} heads of {}, {} states", width_, heads_, options_.head_width, options_.states);
}

}  // namespace weft::nn
