// RNN, GRU and LSTM: directions, peepholes, lengths and activations as ONNX has them. The usual ones are one op each; others go step
// by step.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "onnx/apply.hpp"
#include "onnx/quantised.hpp"
#include "weft/ops/recurrent.hpp"

namespace weft::onnx {
namespace {

using A = Application;
using Activation = std::function<Tensor(const Tensor&)>;

// Numbers that activations take in order, each those that it has.
class Scales {
 public:
  explicit Scales(std::vector<double> given) : given_(std::move(given)) {}
  double next(double fallback) { return at_ < given_.size() ? given_[at_++] : fallback; }

 private:
  std::vector<double> given_;
  std::size_t at_ = 0;
};

/// The name of an activation in lower case, as ONNX leaves its case open.
std::string lower(std::string_view name) {
  std::string made(name);
  std::transform(made.begin(), made.end(), made.begin(), [](unsigned char c) { return std::tolower(c); });
  return made;
}

// The activation of that name, with the next alpha and beta if it has them.
Activation activation_of(const A& a, std::string_view name, Scales& alphas, Scales& betas) {
  const std::string lower = onnx::lower(name);
  if (lower == "relu") return [](const Tensor& x) { return relu(x); };
  if (lower == "tanh") return [](const Tensor& x) { return tanh(x); };
  if (lower == "sigmoid") return [](const Tensor& x) { return sigmoid(x); };
  if (lower == "softsign") return [](const Tensor& x) { return softsign(x); };
  if (lower == "softplus") return [](const Tensor& x) { return logaddexp(x, zeros_like(x)); };
  if (lower == "affine")
    return [alpha = alphas.next(1), beta = betas.next(0)](const Tensor& x) { return x * alpha + beta; };
  if (lower == "leakyrelu") return [alpha = alphas.next(0.01f)](const Tensor& x) { return leaky_relu(x, alpha); };
  if (lower == "thresholdedrelu")
    return [alpha = alphas.next(1)](const Tensor& x) { return where(gt(x, alpha), x, zeros_like(x)); };
  if (lower == "scaledtanh")
    return [alpha = alphas.next(1), beta = betas.next(1)](const Tensor& x) { return tanh(x * beta) * alpha; };
  if (lower == "hardsigmoid")
    return
        [alpha = alphas.next(0.2f), beta = betas.next(0.5)](const Tensor& x) { return clamp(x * alpha + beta, 0, 1); };
  if (lower == "elu") return [alpha = alphas.next(1)](const Tensor& x) { return elu(x, alpha); };
  a.usage_error(fmt::format("unknown activation {}", name));
}

// What a cell needs of one direction. Gates are rows of W and R, and parts of the bias.
struct Direction {
  Tensor x, w, r, input_bias, hidden_bias, peepholes;  // x [T, N, I], w [gates H, I]
  Tensor h, c;                                         // [N, H]
  std::vector<Activation> activations;
  Extent size = 0;
  std::function<Tensor(const Tensor&)> bound;  // the node's clip
  bool linear_before_reset = false;
};
struct State {
  Tensor h, c;
};

Tensor part(const Tensor& gates, const Direction& d, int i) { return narrow(gates, -1, i * d.size, d.size); }

State rnn_step(const Direction& d, const Tensor& wx, const State& s) {
  const Tensor gates = wx + linear(s.h, d.r, d.hidden_bias);
  return {d.activations[0](d.bound(gates)), {}};
}

// Gates z, r, h.
State gru_step(const Direction& d, const Tensor& wx, const State& s) {
  const auto hidden = [&](const Tensor& h, int gate) {
    const Tensor bias = d.hidden_bias.defined() ? narrow(d.hidden_bias, 0, gate * d.size, d.size) : Tensor();
    return linear(h, narrow(d.r, 0, gate * d.size, d.size), bias);
  };
  const Tensor z = d.activations[0](d.bound(part(wx, d, 0) + hidden(s.h, 0)));
  const Tensor r = d.activations[0](d.bound(part(wx, d, 1) + hidden(s.h, 1)));
  const Tensor inner = d.linear_before_reset ? r * hidden(s.h, 2) : hidden(r * s.h, 2);
  const Tensor n = d.activations[1](d.bound(part(wx, d, 2) + inner));
  return {(1.0 - z) * n + z * s.h, {}};
}

// Gates i, o, f, c; peepholes i, o, f.
State lstm_step(const Direction& d, const Tensor& wx, const State& s, bool input_forget) {
  const Tensor gates = wx + linear(s.h, d.r, d.hidden_bias);
  const auto peep = [&](const Tensor& gate, int i, const Tensor& c) {
    return d.peepholes.defined() ? gate + narrow(d.peepholes, 0, i * d.size, d.size) * c : gate;
  };
  const Tensor i = d.activations[0](d.bound(peep(part(gates, d, 0), 0, s.c)));
  const Tensor f = input_forget ? 1.0 - i : d.activations[0](d.bound(peep(part(gates, d, 2), 2, s.c)));
  const Tensor g = d.activations[1](d.bound(part(gates, d, 3)));
  const Tensor c = f * s.c + i * g;
  const Tensor o = d.activations[0](d.bound(peep(part(gates, d, 1), 1, c)));
  return {o * d.activations[2](c), c};
}

enum class Cell { rnn, gru, lstm };

/// Whether the ops rnn, gru and lstm compute a direction with these activations.
template <Cell kCell>
bool is_usual(const A& a, const Direction& d, std::span<const std::string_view> activations) {
  if (a.number("clip", 0) > 0 || d.peepholes.defined() || a.flag("input_forget", false)) return false;
  const auto is = [&](std::size_t i, std::string_view name) { return lower(activations[i]) == name; };
  switch (kCell) {
    case Cell::rnn: return is(0, "tanh") || is(0, "relu");
    case Cell::gru: return d.linear_before_reset && is(0, "sigmoid") && is(1, "tanh");
    case Cell::lstm: return is(0, "sigmoid") && is(1, "tanh") && is(2, "tanh");
  }
}

/// All steps by one op. Its gates have the order of PyTorch: r, z, n and i, f, g, o.
template <Cell kCell>
RecurrentStates all_steps(const Direction& d, bool is_relu, bool backwards, const Tensor& lengths) {
  const auto ordered = [&](const Tensor& v) {
    if (!v.defined() || kCell == Cell::rnn) return v;
    std::vector<Tensor> gates;
    for (const int gate : kCell == Cell::gru ? std::vector{1, 0, 2} : std::vector{0, 2, 3, 1})
      gates.push_back(narrow(v, 0, gate * d.size, d.size));
    return concat(gates, 0);
  };
  const RecurrentWeights weights{ordered(d.w), ordered(d.r), ordered(d.input_bias), ordered(d.hidden_bias), lengths};
  switch (kCell) {
    case Cell::rnn: return rnn(d.x, d.h, weights, is_relu, backwards);
    case Cell::gru: return gru(d.x, d.h, weights, backwards);
    case Cell::lstm: return lstm(d.x, d.h, d.c, weights, backwards);
  }
}

template <Cell kCell>
void recur(A& a, const Tensor& w, const Tensor& r) {
  constexpr int gates = kCell == Cell::rnn ? 1 : kCell == Cell::gru ? 3 : 4;
  constexpr std::size_t per_direction = kCell == Cell::rnn ? 1 : kCell == Cell::gru ? 2 : 3;
  const bool by_batch = a.flag("layout", false);
  const Tensor x = by_batch ? transpose(a[0], 0, 1) : a[0];
  if (x.rank() != 3 || w.rank() != 3 || r.rank() != 3) a.shape_error("x, W and R must have three axes");
  const Extent steps = x.dim(0), batch = x.dim(1), size = r.dim(2), directions = w.dim(0);
  const std::string_view way = a.word("direction", "forward");
  if (directions != (way == "bidirectional" ? 2 : 1)) a.shape_error(fmt::format("W has {} directions", directions));
  if (w.dim(1) != gates * size || r.dim(1) != gates * size) a.shape_error("W and R do not have the rows of all gates");
  if (steps < 1) a.shape_error("there is no step");
  const DType type = x.dtype();

  std::vector<std::string_view> names = a.words("activations");
  if (names.empty())
    for (Extent i = 0; i < directions; ++i) {
      if (kCell == Cell::rnn) names.push_back("Tanh");
      if (kCell == Cell::gru) names.insert(names.end(), {"Sigmoid", "Tanh"});
      if (kCell == Cell::lstm) names.insert(names.end(), {"Sigmoid", "Tanh", "Tanh"});
    }
  if (names.size() != per_direction * static_cast<std::size_t>(directions))
    a.usage_error("the number of activations does not fit");
  Scales alphas(a.numbers("activation_alpha")), betas(a.numbers("activation_beta"));

  const double clip = a.number("clip", 0);
  const Tensor lengths = a.has(4) ? reshape(cast(a[4], DType::i32), {batch, 1}) : Tensor();
  std::vector<Tensor> outputs, last_h, last_c;
  for (Extent direction = 0; direction < directions; ++direction) {
    const auto row = [&](std::size_t i) { return a.has(i) ? select(a[i], 0, direction) : Tensor(); };
    const auto state = [&](std::size_t i) {
      if (!a.has(i)) return zeros({batch, size}, type, a.device());
      return select(a[i], by_batch ? 1 : 0, direction);
    };
    Direction d{.x = x,
                .w = select(w, 0, direction),
                .r = select(r, 0, direction),
                .input_bias = {},
                .hidden_bias = {},
                .peepholes = kCell == Cell::lstm ? row(7) : Tensor(),
                .h = state(5),
                .c = kCell == Cell::lstm ? state(6) : Tensor(),
                .activations = {},
                .size = size,
                .bound = [clip](const Tensor& v) { return clip > 0 ? clamp(v, -clip, clip) : v; },
                .linear_before_reset = a.flag("linear_before_reset", false)};
    if (a.has(3)) {
      const Tensor bias = row(3);
      if (bias.numel() != 2 * gates * size) a.shape_error("the bias does not have two numbers for each gate");
      d.input_bias = narrow(bias, 0, 0, gates * size);
      d.hidden_bias = narrow(bias, 0, gates * size, gates * size);
    }
    for (std::size_t i = 0; i < per_direction; ++i)
      d.activations.push_back(
          activation_of(a, names[static_cast<std::size_t>(direction) * per_direction + i], alphas, betas));
    const bool backwards = direction == 1 || way == "reverse";
    const std::span own = std::span(names).subspan(static_cast<std::size_t>(direction) * per_direction, per_direction);
    if (is_usual<kCell>(a, d, own)) {
      RecurrentStates states = all_steps<kCell>(d, lower(own[0]) == "relu", backwards,
                                                lengths.defined() ? reshape(lengths, {batch}) : Tensor());
      outputs.push_back(std::move(states.output));
      last_h.push_back(std::move(states.h));
      if (states.c.defined()) last_c.push_back(std::move(states.c));
      continue;
    }
    if (steps > kMaxSteps) a.shape_error(fmt::format("{} steps; such a cell can take {}", steps, kMaxSteps));
    const Tensor products = linear(d.x, d.w, d.input_bias);  // of all steps
    State s{d.h, d.c};
    std::vector<Tensor> made(static_cast<std::size_t>(steps));
    for (Extent i = 0; i < steps; ++i) {
      const Extent t = backwards ? steps - 1 - i : i;
      const Tensor wx = select(products, 0, t);
      State next;
      if constexpr (kCell == Cell::rnn) next = rnn_step(d, wx, s);
      if constexpr (kCell == Cell::gru) next = gru_step(d, wx, s);
      if constexpr (kCell == Cell::lstm) next = lstm_step(d, wx, s, a.flag("input_forget", false));
      Tensor out = next.h;
      if (lengths.defined()) {  // a sequence that has ended keeps its state and gives zeros
        const Tensor on = gt(lengths, static_cast<double>(t));
        out = where(on, next.h, zeros_like(next.h));
        next.h = where(on, next.h, s.h);
        if (next.c.defined()) next.c = where(on, next.c, s.c);
      }
      s = next;
      made[static_cast<std::size_t>(t)] = out;
    }
    outputs.push_back(stack(made, 0));  // [T, N, H]
    last_h.push_back(s.h);
    if (s.c.defined()) last_c.push_back(s.c);
  }
  const int by = by_batch ? 1 : 0;
  const Tensor y = stack(outputs, 1);  // [T, D, N, H]
  a.give(0, by_batch ? permute(y, {2, 0, 1, 3}) : y);
  a.give(1, stack(last_h, by));
  if (!last_c.empty()) a.give(2, stack(last_c, by));
}

template <Cell kCell>
void recurrent(A& a) {
  recur<kCell>(a, a[1], a[2]);
}

constexpr Operator kRecurrentOperators[] = {
    {"RNN", recurrent<Cell::rnn>}, {"GRU", recurrent<Cell::gru>}, {"LSTM", recurrent<Cell::lstm>}};

}  // namespace

// An LSTM whose weights are integers, with rows and columns exchanged. ONNX Runtime also rounds x and h to integers.
void lstm_of_integers(A& a) {
  const auto weight = [&](std::size_t i, std::size_t scale, std::size_t zero) {
    if (a[i].rank() != 3) a.shape_error("W and R must have three axes");
    // Scales are by direction, or by direction and column.
    const auto placed = [&](const Tensor& v) {
      return reshape(v, {v.dim(0), 1, v.numel() / std::max<Extent>(v.dim(0), 1)});
    };
    Tensor w = cast(a[i], DType::i32);
    if (a.has(zero)) w = w - cast(placed(a[zero]), DType::i32);
    return transpose(cast(w, DType::f32) * placed(a[scale]));
  };
  recur<Cell::lstm>(a, weight(1, 8, 9), weight(2, 10, 11));
}

std::span<const Operator> recurrent_operators() { return kRecurrentOperators; }

}  // namespace weft::onnx
