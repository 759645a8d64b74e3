// Every type of layer against loops in f64, and its gradients against central differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "grid/layer_functions.hpp"
#include "grid/layer_rows.hpp"
#include "weft/gradcheck.hpp"
#include "weft/grid.hpp"
#include "weft/ops.hpp"

namespace weft::grid::layers {
namespace {

using Values = std::vector<double>;

Values drawn(std::size_t count, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> distribution(low, high);
  Values values(count);
  for (double& v : values) v = distribution(engine);
  return values;
}
Tensor f64(const Values& values, const Shape& shape) { return tensor<double>(std::span<const double>(values), shape); }

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::relu: return std::max(x, 0.0);
    case Activation::silu: return x * logistic(x);
    case Activation::gelu: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::tanh: return std::tanh(x);
    case Activation::sigmoid: return logistic(x);
    case Activation::linear: break;
  }
  return x;
}

/// y = W x + b for one vector; b may be empty.
Values product(const Values& w, const Values& x, std::size_t begin, std::size_t inputs, const Values& b = {}) {
  const std::size_t outputs = w.size() / inputs;
  Values y(outputs);
  for (std::size_t o = 0; o < outputs; ++o) {
    y[o] = b.empty() ? 0 : b[o];
    for (std::size_t i = 0; i < inputs; ++i) y[o] += w[o * inputs + i] * x[begin + i];
  }
  return y;
}
void append(Values& all, const Values& part) { all.insert(all.end(), part.begin(), part.end()); }

Values softmax_of(const Values& x) {
  const double top = *std::max_element(x.begin(), x.end());
  Values y;
  double total = 0;
  for (const double v : x) total += y.emplace_back(std::exp(v - top));
  for (double& v : y) v /= total;
  return y;
}

/// A layer, the shape of its input, and its function by loops. `w` are its parameters.
struct Case {
  const char* name;
  Layer layer;
  Shape x;
  std::function<Values(const Layer&, const std::vector<Values>& w, const Values& x, const Shape& shape)> reference;
  double low = -1, high = 1;  // of x
};

Values attention_reference(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape& shape) {
  const auto batch = static_cast<std::size_t>(shape[0]), steps = static_cast<std::size_t>(shape[1]),
             d = static_cast<std::size_t>(l.inputs), heads = static_cast<std::size_t>(l.heads),
             key_heads = static_cast<std::size_t>(l.key_heads ? l.key_heads : l.heads), width = d / heads;
  const std::size_t window = l.window ? static_cast<std::size_t>(l.window) : steps;
  const auto rotate = [&](Values& v, std::size_t count, std::size_t position) {
    if (!(l.rope_base > 0)) return;
    for (std::size_t h = 0; h < count; ++h)
      for (std::size_t i = 0; i < width / 2; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(l.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
        double &a = v[h * width + i], &b = v[h * width + i + width / 2];
        const double first = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = first;
      }
  };
  Values y;
  for (std::size_t n = 0; n < batch; ++n) {
    std::vector<Values> q, k, v;
    for (std::size_t s = 0; s < steps; ++s) {
      const std::size_t at = (n * steps + s) * d;
      q.push_back(product(w[0], x, at, d, w[4]));
      k.push_back(product(w[1], x, at, d, w[5]));
      v.push_back(product(w[2], x, at, d, w[6]));
      rotate(q.back(), heads, s);
      rotate(k.back(), key_heads, s);
    }
    for (std::size_t s = 0; s < steps; ++s) {
      Values mixed(d);
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t g = h * key_heads / heads, first = s + 1 > window ? s + 1 - window : 0;
        Values scores;
        for (std::size_t t = first; t <= s; ++t) {
          double score = 0;
          for (std::size_t i = 0; i < width; ++i) score += q[s][h * width + i] * k[t][g * width + i];
          scores.push_back(score / std::sqrt(static_cast<double>(width)));
        }
        const Values shares = softmax_of(scores);
        for (std::size_t t = first; t <= s; ++t)
          for (std::size_t i = 0; i < width; ++i) mixed[h * width + i] += shares[t - first] * v[t][g * width + i];
      }
      append(y, product(w[3], mixed, 0, d, w[7]));
    }
  }
  return y;
}

/// Two buffers: all units read the state of the step before.
Values rnn_reference(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape& shape) {
  const auto inputs = static_cast<std::size_t>(l.inputs), units = static_cast<std::size_t>(l.outputs);
  Values y;
  for (Extent n = 0; n < shape[0]; ++n) {
    Values h(units);
    for (Extent s = 0; s < shape[1]; ++s) {
      Values next = product(w[0], x, static_cast<std::size_t>(n * shape[1] + s) * inputs, inputs, w[2]);
      const Values before = product(w[1], h, 0, units);
      for (std::size_t u = 0; u < units; ++u) next[u] = std::tanh(next[u] + before[u]);
      append(y, h = next);
    }
  }
  return y;
}

Values lstm_reference(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape& shape) {
  const auto inputs = static_cast<std::size_t>(l.inputs), units = static_cast<std::size_t>(l.outputs);
  Values y;
  for (Extent n = 0; n < shape[0]; ++n) {
    Values h(units), c(units);
    for (Extent s = 0; s < shape[1]; ++s) {
      Values gates[4];
      for (std::size_t g = 0; g < 4; ++g) {
        gates[g] = product(w[3 * g], x, static_cast<std::size_t>(n * shape[1] + s) * inputs, inputs, w[3 * g + 2]);
        const Values before = product(w[3 * g + 1], h, 0, units);
        for (std::size_t u = 0; u < units; ++u) gates[g][u] += before[u];
      }
      Values next(units);
      for (std::size_t u = 0; u < units; ++u) {
        c[u] = logistic(gates[1][u]) * c[u] + logistic(gates[0][u]) * std::tanh(gates[2][u]);
        next[u] = logistic(gates[3][u]) * std::tanh(c[u]);
      }
      append(y, h = next);
    }
  }
  return y;
}

/// Over up to three axes of space; missing ones have one place.
Values convolution_reference(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape& shape,
                             bool transposed) {
  const int axes = axes_of_space(l.type);
  Extent in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0};
  for (int i = 0; i < axes; ++i) {
    in[i] = shape[2 + i];
    kernel[i] = l.kernel;
    stride[i] = l.stride;
    padding[i] = l.padding;
    out[i] = transposed ? (in[i] - 1) * l.stride + l.kernel - 2 * l.padding
                        : (in[i] + 2 * l.padding - l.kernel) / l.stride + 1;
  }
  const auto places = [](const Extent* e) { return e[0] * e[1] * e[2]; };
  Values y(static_cast<std::size_t>(shape[0] * l.filters * places(out)));
  for (Extent n = 0; n < shape[0]; ++n)
    for (Extent f = 0; f < l.filters; ++f)
      for (Extent c = 0; c < l.channels; ++c)
        for (Extent k = 0; k < places(kernel); ++k)
          for (Extent p = 0; p < places(transposed ? in : out); ++p) {
            const Extent ks[3] = {k / (kernel[1] * kernel[2]), k / kernel[2] % kernel[1], k % kernel[2]};
            const Extent* from = transposed ? in : out;
            const Extent ps[3] = {p / (from[1] * from[2]), p / from[2] % from[1], p % from[2]};
            Extent qs[3];
            const Extent* to = transposed ? out : in;
            bool inside = true;
            for (int i = 0; i < 3; ++i) {
              qs[i] = ps[i] * stride[i] + ks[i] - padding[i];
              inside = inside && qs[i] >= 0 && qs[i] < to[i];
            }
            if (!inside) continue;
            const Extent q = (qs[0] * to[1] + qs[1]) * to[2] + qs[2];
            const Extent x_at = (n * l.channels + c) * places(in) + (transposed ? p : q);
            const Extent y_at = (n * l.filters + f) * places(out) + (transposed ? q : p);
            const Extent w_at = (f * l.channels + c) * places(kernel) + k;
            y[static_cast<std::size_t>(y_at)] +=
                w[0][static_cast<std::size_t>(w_at)] * x[static_cast<std::size_t>(x_at)];
          }
  return y;
}
Values forward_convolution(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape& shape) {
  return convolution_reference(l, w, x, shape, false);
}
Values backward_convolution(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape& shape) {
  return convolution_reference(l, w, x, shape, true);
}

Values kmeans_reference(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape&) {
  const auto inputs = static_cast<std::size_t>(l.inputs), clusters = static_cast<std::size_t>(l.clusters);
  Values y;
  for (std::size_t row = 0; row < x.size() / inputs; ++row) {
    Values logits(clusters);
    for (std::size_t k = 0; k < clusters; ++k)
      for (std::size_t i = 0; i < inputs; ++i)
        logits[k] -= std::pow(x[row * inputs + i] - w[0][k * inputs + i], 2) / (2 * l.temperature * l.temperature);
    const Values shares = softmax_of(logits);
    if (!l.features) {
      append(y, shares);
      continue;
    }
    Values mean(inputs);
    for (std::size_t k = 0; k < clusters; ++k)
      for (std::size_t i = 0; i < inputs; ++i) mean[i] += shares[k] * w[0][k * inputs + i];
    append(y, mean);
  }
  return y;
}

Values swiglu_reference(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape&) {
  const auto inputs = static_cast<std::size_t>(l.inputs);
  Values y;
  for (std::size_t at = 0; at < x.size(); at += inputs) {
    Values inner = product(w[0], x, at, inputs, w[3]);
    const Values up = product(w[1], x, at, inputs, w[4]);
    for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= logistic(inner[i]) * up[i];
    append(y, product(w[2], inner, 0, inner.size(), w[5]));
  }
  return y;
}

Values norm_reference(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape&) {
  const auto inputs = static_cast<std::size_t>(l.inputs);
  const bool centred = l.type == LayerType::layer_norm;
  Values y;
  for (std::size_t at = 0; at < x.size(); at += inputs) {
    double mean = 0, squares = 0;
    for (std::size_t i = 0; i < inputs; ++i) {
      mean += x[at + i] / static_cast<double>(inputs);
      squares += x[at + i] * x[at + i] / static_cast<double>(inputs);
    }
    if (!centred) mean = 0;
    const double scale = std::sqrt(squares - mean * mean + (centred ? 1e-5 : 1e-6));
    for (std::size_t i = 0; i < inputs; ++i)
      y.push_back((x[at + i] - mean) / scale * w[0][i] + (centred ? w[1][i] : 0));
  }
  return y;
}

Values dense_reference(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape&) {
  Values y;
  for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(l.inputs))
    append(y, product(w[0], x, at, static_cast<std::size_t>(l.inputs)));
  return y;
}

Values embedding_reference(const Layer& l, const std::vector<Values>& w, const Values& x, const Shape&) {
  Values y;
  for (const double id : x)
    for (Extent i = 0; i < l.outputs; ++i)
      y.push_back(
          id < 0 || id >= static_cast<double>(l.vocabulary)
              ? 0
              : w[0][static_cast<std::size_t>(id) * static_cast<std::size_t>(l.outputs) + static_cast<std::size_t>(i)]);
  return y;
}

Layer windowed(Layer layer, Extent window) {
  layer.window = window;
  return layer;
}

const Case kCases[] = {
    {"dense", dense_layer(3, 5), {4, 3}, dense_reference},
    {"dense over joined axes", dense_layer(6, 4), {2, 3, 2}, dense_reference},
    {"attention with kv != d", attention_layer(8, 4, 2, 100), {2, 5, 8}, attention_reference},
    {"attention of one head without positions", attention_layer(3, 1), {1, 4, 3}, attention_reference},
    {"attention in a window", windowed(attention_layer(4, 2, 1, 50), 2), {2, 6, 4}, attention_reference},
    {"swiglu", swiglu_layer(3, 5), {2, 3}, swiglu_reference},
    {"rms_norm", rms_norm_layer(4), {3, 4}, norm_reference},
    {"layer_norm", layer_norm_layer(4), {3, 4}, norm_reference},
    {"cnn1",
     cnn_layer(1, {.channels = 2, .filters = 3, .kernel = 3, .stride = 2, .padding = 1}),
     {2, 2, 6},
     forward_convolution},
    {"cnn2", cnn_layer(2, {.channels = 2, .filters = 3, .kernel = 2}), {2, 2, 4, 5}, forward_convolution},
    {"cnn3",
     cnn_layer(3, {.channels = 1, .filters = 2, .kernel = 2, .padding = 1}),
     {1, 1, 3, 2, 3},
     forward_convolution},
    {"conv_transposed1",
     conv_transposed_layer(1, {.channels = 3, .filters = 2, .kernel = 3, .stride = 2, .padding = 1}),
     {2, 3, 4},
     backward_convolution},
    {"conv_transposed2",
     conv_transposed_layer(2, {.channels = 2, .filters = 3, .kernel = 2, .stride = 2}),
     {1, 2, 3, 2},
     backward_convolution},
    {"conv_transposed3",
     conv_transposed_layer(3, {.channels = 2, .filters = 1, .kernel = 2}),
     {1, 2, 2, 3, 2},
     backward_convolution},
    // Three steps and several units: with one buffer, later units would see new states of earlier ones.
    {"rnn", rnn_layer(2, 3), {2, 3, 2}, rnn_reference},
    {"lstm", lstm_layer(2, 3), {2, 3, 2}, lstm_reference},
    {"embedding", embedding_layer(5, 3), {2, 4}, embedding_reference, -2, 8},
    {"kmeans", kmeans_layer(3, 4, false, 0.7), {5, 3}, kmeans_reference},
    {"kmeans features", kmeans_layer(3, 4, true, 0.7), {5, 3}, kmeans_reference},
};

/// A case with parameters and input in f64.
struct Prepared {
  explicit Prepared(const Case& c) : layer(c.layer) {
    unsigned seed = 1;
    for (const ParameterSpec& p : parameters_of(layer)) {
      values.push_back(drawn(static_cast<std::size_t>(p.shape.numel()), seed++));
      weights.push_back(f64(values.back(), p.shape));
    }
    x_values = drawn(static_cast<std::size_t>(c.x.numel()), 99, c.low, c.high);
    x = f64(x_values, c.x);
  }
  Layer layer;
  std::vector<Values> values;
  std::vector<Tensor> weights;
  Values x_values;
  Tensor x;
};

TEST(GridLayers, AreTheirFormulas) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Prepared p(c);
    if (c.layer.type == LayerType::embedding)
      for (double& id : p.x_values) id = std::trunc(id);
    for (const Activation activation : kActivations) {
      if (!row_of(p.layer.type).activates && activation != Activation::linear) continue;
      const Tensor y = activate(activation, row_of(p.layer.type).forward(p.layer, p.weights, p.x, Where::current()),
                                Where::current());
      const Values wanted = c.reference(p.layer, p.values, p.x_values, c.x);
      const Values got = y.to_vector<double>();
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], activated(activation, wanted[i]), 1e-9) << name_of(activation) << " " << i;
    }
  }
}

TEST(GridLayers, GradientsAreThoseOfCentralDifferences) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Prepared p(c);
    for (const Activation activation : {Activation::linear, Activation::gelu}) {
      if (!row_of(p.layer.type).activates && activation != Activation::linear) continue;
      std::vector<Tensor> inputs = p.weights;
      if (c.layer.type != LayerType::embedding) inputs.push_back(p.x);
      const auto report = gradcheck(
          [&](std::span<const Tensor> in) {
            const Tensor& x = in.size() > p.weights.size() ? in.back() : p.x;
            return std::vector<Tensor>{activate(
                activation, row_of(p.layer.type).forward(p.layer, in.first(p.weights.size()), x, Where::current()),
                Where::current())};
          },
          inputs, {.forward = false});
      EXPECT_TRUE(report) << report.message;
    }
  }
}

// ---- Softmaxes -----------------------------------------------------------------------------------------------------------

Layer softmax_with(SoftmaxKind kind, const std::function<void(Layer&)>& change = {}) {
  Layer layer = softmax_layer(kind, 0.7);
  if (change) change(layer);
  return layer;
}

/// max(x - t, 0)^power with t by bisection, so that the sum is 1.
Values simplex_by_bisection(const Values& x, double power) {
  double low = *std::max_element(x.begin(), x.end()) - 1, high = low + 1;
  const auto shares = [&](double t) {
    Values y;
    for (const double v : x) y.push_back(std::pow(std::max(v - t, 0.0), power));
    return y;
  };
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    double total = 0;
    for (const double v : shares(middle)) total += v;
    (total >= 1 ? low : high) = middle;
  }
  return shares(low);
}

struct SoftmaxCase {
  const char* name;
  Layer layer;
  Extent width;
  std::function<Values(const Values&)> reference;  // of logits divided by the temperature
};

Values in_groups(const Values& x, std::size_t size) {
  Values y;
  for (std::size_t at = 0; at < x.size(); at += size)
    append(y, softmax_of(
                  {x.begin() + static_cast<std::ptrdiff_t>(at), x.begin() + static_cast<std::ptrdiff_t>(at + size)}));
  return y;
}
Values scaled(Values x, double factor) {
  for (double& v : x) v *= factor;
  return x;
}

const SoftmaxCase kSoftmaxCases[] = {
    {"standard", softmax_with(SoftmaxKind::standard), 6, softmax_of},
    {"temperature", softmax_with(SoftmaxKind::temperature), 6, softmax_of},
    {"adaptive", softmax_with(SoftmaxKind::adaptive), 6,
     [](const Values& x) {
       double h = 0;
       for (const double p : softmax_of(x)) h -= p * std::log(p + 1e-9);
       const double b = -0.037 * std::pow(h, 4) + 0.481 * std::pow(h, 3) - 2.3 * h * h + 4.917 * h - 1.791;
       return softmax_of(scaled(x, h > 0.5 ? std::max(b, 1.0) : 1));
     }},
    {"grid", softmax_with(SoftmaxKind::grid, [](Layer& l) { l.rows = 2, l.columns = 3; }), 6,
     [](const Values& x) { return in_groups(x, 3); }},
    {"grid without extents", softmax_with(SoftmaxKind::grid), 6, softmax_of},
    {"hierarchical",
     softmax_with(SoftmaxKind::hierarchical,
                  [](Layer& l) {
                    l.levels = {3, 2};
                  }),
     6, [](const Values& x) { return in_groups(x, 2); }},
    {"masked",
     softmax_with(SoftmaxKind::masked,
                  [](Layer& l) {
                    l.mask = {true, false, true, true};
                  }),
     4,
     [](const Values& x) {
       const Values y = softmax_of({x[0], x[2], x[3]});
       return Values{y[0], 0, y[1], y[2]};
     }},
    {"sparse", softmax_with(SoftmaxKind::sparse), 6, [](const Values& x) { return simplex_by_bisection(x, 1); }},
    {"mixture", softmax_with(SoftmaxKind::mixture, [](Layer& l) { l.rows = 2, l.columns = 3; }), 8,
     [](const Values& x) {
       const Values a = softmax_of({x[0], x[1], x[2]}), b = softmax_of({x[3], x[4], x[5]}),
                    w = softmax_of({x[6], x[7]});
       return Values{w[0] * a[0] + w[1] * b[0], w[0] * a[1] + w[1] * b[1], w[0] * a[2] + w[1] * b[2]};
     }},
    {"entmax 1.5", softmax_with(SoftmaxKind::entmax), 6,
     [](const Values& x) { return simplex_by_bisection(scaled(x, 0.5), 2); }},
    {"entmax 1.25", softmax_with(SoftmaxKind::entmax, [](Layer& l) { l.alpha = 1.25; }), 6,
     [](const Values& x) { return simplex_by_bisection(scaled(x, 0.25), 4); }},
    {"entmax 1", softmax_with(SoftmaxKind::entmax, [](Layer& l) { l.alpha = 1; }), 6, softmax_of},
    {"entmax 2", softmax_with(SoftmaxKind::entmax, [](Layer& l) { l.alpha = 2; }), 6,
     [](const Values& x) { return simplex_by_bisection(x, 1); }},
};

TEST(GridLayers, SoftmaxesAreTheirFormulas) {
  for (const SoftmaxCase& c : kSoftmaxCases) {
    SCOPED_TRACE(c.name);
    const Values x = drawn(3 * static_cast<std::size_t>(c.width), 7, -1.5, 1.5);
    Values wanted;
    for (std::size_t row = 0; row < 3; ++row) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row) * c.width;
      append(wanted, c.reference(scaled({begin, begin + c.width}, 1 / 0.7)));
    }
    const Values got = any_softmax(c.layer, {}, f64(x, {3, c.width}), Where::current()).to_vector<double>();
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6) << i;
  }
}

// Trap: one rule p (g - sum(g p)) for all, without the support of the sparse ones and without the temperature.
TEST(GridLayers, GradientsOfSoftmaxesAreThoseOfCentralDifferences) {
  for (const SoftmaxCase& c : kSoftmaxCases) {
    SCOPED_TRACE(c.name);
    const bool bisects = c.layer.softmax == SoftmaxKind::entmax && c.layer.alpha == 1.25;
    const auto report = gradcheck(
        [&](std::span<const Tensor> in) {
          return std::vector<Tensor>{any_softmax(c.layer, {}, in[0], Where::current())};
        },
        {f64(drawn(3 * static_cast<std::size_t>(c.width), 7, -1.5, 1.5), {3, c.width})},
        {.step = bisects ? 1e-3 : 1e-5,
         .relative = bisects ? 2e-3 : 1e-4,
         .absolute = bisects ? 1e-5 : 1e-6,
         .forward = false});
    EXPECT_TRUE(report) << report.message;
  }
}

TEST(GridLayers, AdaptiveSoftmaxSharpensFlatLinesOnly) {
  const Tensor flat = f64({0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, {1, 6}), sharp = f64({9, 0, 0, 0, 0, 0}, {1, 6});
  const auto top = [](const Layer& layer, const Tensor& x) {
    return amax(any_softmax(layer, {}, x, Where::current())).item<double>();
  };
  EXPECT_GT(top(softmax_layer(SoftmaxKind::adaptive), flat), top(softmax_layer(), flat) + 0.01);
  EXPECT_EQ(top(softmax_layer(SoftmaxKind::adaptive), sharp), top(softmax_layer(), sharp));
}

TEST(GridLayers, GumbelDrawsFromTheSeededGenerator) {
  const Tensor x = zeros({2000, 3});
  const auto draw = [&] {
    manual_seed(5);
    return any_softmax(softmax_layer(SoftmaxKind::gumbel, 1), {}, x, Where::current()).to_vector<float>();
  };
  const std::vector<float> first = draw();
  EXPECT_EQ(first, draw());
  double means[3] = {};
  for (std::size_t i = 0; i < first.size(); ++i) means[i % 3] += first[i] / 2000;
  for (const double mean : means) EXPECT_NEAR(mean, 1.0 / 3, 0.03);
  EXPECT_NE(first[0], first[1]);
}

TEST(GridLayers, RefuseWhatDoesNotFit) {
  const auto run = [](const Layer& layer, const Shape& x) {
    std::vector<Tensor> weights;
    for (const ParameterSpec& p : parameters_of(layer)) weights.push_back(zeros(p.shape));
    row_of(layer.type).forward(layer, weights, zeros(x), Where::current());
  };
  EXPECT_THROW(run(dense_layer(3, 2), {4, 5}), ShapeError);
  EXPECT_THROW(run(attention_layer(4, 2), {1, 2, 3, 4}), ShapeError);
  EXPECT_THROW(run(cnn_layer(2, {.channels = 2}), {1, 3, 4, 4}), ShapeError);
  EXPECT_THROW(run(rnn_layer(3, 2), {3}), ShapeError);
  EXPECT_THROW(run(softmax_with(SoftmaxKind::hierarchical, [](Layer& l) { l.levels = {4}; }), {2, 6}), ShapeError);
  EXPECT_THROW(run(softmax_with(SoftmaxKind::masked, [](Layer& l) { l.mask = {true}; }), {2, 6}), ShapeError);
  EXPECT_THROW(run(softmax_layer(), {}), ShapeError);
}

}  // namespace
}  // namespace weft::grid::layers
