#include <algorithm>

#include "optim/rule.hpp"

namespace weft::optim {
namespace {

enum MuonKind : int { by_adamw, by_orthogonal_matrices };

std::vector<StateRow> muon_states(const MuonOptions& /*options*/, int kind) {
  if (kind == by_adamw) return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  return {{.name = "momentum_buffer"}};
}

Tensor orthogonal(const MuonOptions& o, Tensor x) {
  const bool tall = x.dim(0) > x.dim(1);  // the smaller side is multiplied
  if (tall) x = transpose(x);
  x = x / maximum(sqrt(sum(square(x))), o.epsilon);
  for (Extent i = 0; i < o.iterations; ++i) {
    const Tensor gram = matmul(x, transpose(x));
    x = x * 3.4445 + matmul(gram * -4.775 + matmul(gram, gram) * 2.0315, x);
  }
  return tall ? transpose(x) : x;
}

Tensor muon_matrices(const MuonOptions& o, Update& u) {
  u.state[0] = moved(u.state[0], u.gradient, o.momentum);
  std::vector<Tensor> steps = u.parts(o.nesterov ? moved(u.gradient, u.state[0], 1 - o.momentum) : u.state[0]);
  for (Tensor& step : steps) {
    const Extent rows = step.dim(0), columns = rows ? step.numel() / rows : 0;
    if (step.numel() == 0) continue;
    const double m = static_cast<double>(rows), n = static_cast<double>(columns);
    const double factor = o.match_adamw ? 0.2 * std::sqrt(std::max(m, n)) : std::sqrt(std::max(1.0, m / n));
    step = orthogonal(o, reshape(step, {rows, columns})) * factor;
  }
  return u.parameter - u.rate * Update::join(steps);
}

Tensor muon_update(const MuonOptions& o, Update& u) {
  if (u.kind == by_orthogonal_matrices) return muon_matrices(o, u);
  AdamWOptions rest;
  rest.beta_1 = o.beta_1;
  rest.beta_2 = o.beta_2;
  rest.epsilon = o.adam_epsilon;
  return rule_of(rest).update(rest, u);
}

}  // namespace

const Rule<MuonOptions>& rule_of(const MuonOptions& /*options*/) {
  using O = MuonOptions;
  static const Rule<O> rule = {
      .name = "muon",
      .title = "Muon",
      .doc = "matrices along the nearest orthogonal matrix of their momentum, other parameters by AdamW",
      .fields = {{"momentum", &O::momentum, Range::share, "decay rate of the momentum"},
                 {"nesterov", &O::nesterov, {}, "looks ahead"},
                 {"epsilon", &O::epsilon, Range::positive, "least norm of a momentum"},
                 {"iterations", &O::iterations, Range::not_negative, "steps towards an orthogonal matrix"},
                 {"match_adamw", &O::match_adamw, {}, "gives updates the size of AdamW's"},
                 {"beta_1", &O::beta_1, Range::share, "of AdamW"},
                 {"beta_2", &O::beta_2, Range::share, "of AdamW"},
                 {"adam_epsilon", &O::adam_epsilon, Range::positive, "of AdamW"}},
      .states = muon_states,
      .update = muon_update,
      .decay = [](const O&) { return Decay::decoupled; },
      .kind = [](const O& o, const nn::NamedParameter& p) -> int {
        const bool is_matrix = p.variable.shape().rank() >= 2 && (!o.matrix_filter || o.matrix_filter(p.name));
        return is_matrix ? by_orthogonal_matrices : by_adamw;
      }};
  return rule;
}

}  // namespace weft::optim
