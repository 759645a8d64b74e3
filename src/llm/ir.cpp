#include "llm/ir.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "weft/error.hpp"

namespace weft::llm {
namespace {

struct OpRow {
  std::string_view name;
  std::size_t inputs_min, inputs_max;
  std::vector<std::string_view> attributes;  // that must be there
};
const OpRow& row_of(OpType op) {
  static const OpRow rows[] = {{"embedding", 2, 2, {}},
                               {"insert", 2, 2, {}},
                               {"add_image", 2, 2, {"begin"}},
                               {"pick", 1, 1, {}},
                               {"rms_norm", 2, 2, {"eps", "width"}},
                               {"unit_norm", 1, 1, {"eps", "width"}},
                               {"layer_norm", 1, 3, {"eps"}},
                               {"matmul", 2, 3, {}},
                               {"columns", 1, 1, {"begin", "count"}},
                               {"group_columns", 1, 1, {"groups", "begin", "count"}},
                               {"group_concat", 2, 2, {"groups"}},
                               {"group_matmul", 2, 2, {}},
                               {"rope", 1, 1, {"heads", "dims", "pairs", "local"}},
                               {"attention", 5, 6, {"heads", "kv_heads", "scale"}},
                               {"silu", 1, 1, {}},
                               {"gelu", 1, 1, {}},
                               {"gelu_tanh", 1, 1, {}},
                               {"relu2", 1, 1, {}},
                               {"xielu", 1, 5, {}},
                               {"sigmoid", 1, 1, {}},
                               {"tanh", 1, 1, {}},
                               {"cut_below", 1, 1, {"deviations"}},
                               {"mix_streams", 2, 2, {"streams"}},
                               {"add_to_streams", 2, 2, {"first"}},
                               {"match_magnitude", 2, 2, {}},
                               {"mul_each", 2, 2, {}},
                               {"mul", 2, 2, {}},
                               {"add", 2, 2, {}},
                               {"scale", 1, 1, {"factor"}},
                               {"soft_cap", 1, 1, {"cap"}},
                               {"clamp", 1, 1, {"limit"}},
                               {"grow", 1, 1, {"each", "offset", "factor"}},
                               {"experts", 5, 14, {"used", "shares"}},
                               {"short_conv", 3, 4, {"kernel"}},
                               {"selective_scan", 7, 7, {"log"}},
                               {"state_space_scan", 8, 8, {"heads", "groups", "log", "dt_least", "dt_most"}},
                               {"delta_scan", 8, 8, {"heads", "groups", "log"}}};
  return rows[static_cast<std::size_t>(op)];
}

std::string text(const std::vector<Dim>& shape) {
  std::vector<std::string> parts;
  for (const Dim& d : shape) parts.push_back(d.to_string());
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace

std::string_view name_of(OpType op) { return row_of(op).name; }

std::string Dim::to_string() const {
  constexpr std::string_view names[] = {"", "T", "R", "L", "W", "S"};
  return symbol == Symbol::none ? std::to_string(value) : std::string(names[static_cast<std::size_t>(symbol)]);
}

Extent OpNode::integer(const std::string& name, Extent fallback) const {
  auto it = attributes.find(name);
  return it == attributes.end() ? fallback : std::get<Extent>(it->second);
}
double OpNode::real(const std::string& name, double fallback) const {
  auto it = attributes.find(name);
  return it == attributes.end() ? fallback : std::get<double>(it->second);
}

const TensorDesc* ModelGraph::find(std::string_view name) const {
  for (const TensorDesc& t : tensors)
    if (t.name == name) return &t;
  return nullptr;
}
const TensorDesc& ModelGraph::at(std::string_view name) const {
  const TensorDesc* t = find(name);
  if (!t) throw InternalError(fmt::format("model graph: there is no tensor \"{}\"", name));
  return *t;
}

std::string ModelGraph::to_string() const {
  constexpr std::string_view elements[] = {"f32", "i32", "weight", "cache"};
  constexpr std::string_view storages[] = {"constant", "adapter", "activation", "kv_cache", "state"};
  std::string s = fmt::format("model {} ({}): {} tensors, {} nodes, {} -> {}\n", family, config.architecture,
                              tensors.size(), nodes.size(), input, output);
  for (const TensorDesc& t : tensors)
    s += fmt::format("tensor {} {} {} {}{}{}\n", t.name, elements[static_cast<std::size_t>(t.element)], text(t.shape),
                     storages[static_cast<std::size_t>(t.storage)],
                     t.keys.empty() ? "" : fmt::format(" from {}", fmt::join(t.keys, ", ")),
                     t.transposed ? " transposed"
                     : t.cut      ? " in part"
                                  : "");
  for (const OpNode& n : nodes) {
    s += fmt::format("{} = {}({})", n.id, name_of(n.op), fmt::join(n.inputs, ", "));
    for (const auto& [name, value] : n.attributes)
      std::visit([&](const auto& v) { s += fmt::format(" {}={}", name, v); }, value);
    s += fmt::format(" -> {}\n", n.output);
  }
  return s;
}

void ModelGraph::validate() const {
  std::string problems;
  const auto problem = [&](std::string_view where, const std::string& fact) {
    problems += fmt::format("\n  {}: {}", where, fact);
  };
  std::map<std::string, const TensorDesc*, std::less<>> known;
  for (const TensorDesc& t : tensors) {
    if (!known.emplace(t.name, &t).second) problem(t.name, "two tensors of this name");
    if ((t.storage == TensorStorage::constant) != !t.keys.empty())
      problem(t.name, "constants, and only they, have keys");
    for (const Dim& d : t.shape)
      if (d.symbol == Symbol::none && d.value < 1) problem(t.name, "an extent below 1");
  }
  std::set<std::string, std::less<>> made{input, positions, image_rows}, ids;
  const auto shape_of = [&](const std::string& name) { return known.at(name)->shape; };
  for (const OpNode& n : nodes) {
    const OpRow& row = row_of(n.op);
    if (!ids.insert(n.id).second) problem(n.id, "two nodes of this id");
    if (n.inputs.size() < row.inputs_min || n.inputs.size() > row.inputs_max)
      problem(n.id, fmt::format("{} inputs", n.inputs.size()));
    for (std::string_view name : row.attributes)
      if (!n.attributes.contains(std::string(name))) problem(n.id, fmt::format("attribute {} is missing", name));
    bool complete = known.contains(n.output);
    if (!complete) problem(n.id, fmt::format("its output {} is not a tensor of the graph", n.output));
    for (const std::string& name : n.inputs) {
      auto it = known.find(name);
      if (it == known.end()) {
        problem(n.id, fmt::format("{} is not a tensor of the graph", name));
        complete = false;
      } else if (it->second->storage == TensorStorage::activation && !made.contains(name)) {
        problem(n.id, fmt::format("{} is read before it is made", name));
      }
    }
    if (complete && known.at(n.output)->storage != TensorStorage::activation)
      problem(n.id, "writes a tensor that is not an activation");
    if (!made.insert(n.output).second) problem(n.id, fmt::format("{} is made twice", n.output));
    if (!complete || n.inputs.size() < row.inputs_min) continue;
    const std::vector<Dim> x = shape_of(n.inputs[0]), y = shape_of(n.output);
    const auto fit = [&](bool good) {
      if (good) return;
      std::vector<std::string> shapes;
      for (const std::string& name : n.inputs) shapes.push_back(text(shape_of(name)));
      problem(n.id, fmt::format("{} of {} is not {}", row.name, fmt::join(shapes, " and "), text(y)));
    };
    const auto require_state = [&](const std::string& name) {
      if (known.at(name)->storage != TensorStorage::state) problem(n.id, name + " is not a state");
    };
    switch (n.op) {
      case OpType::embedding: fit(x.size() == 2 && y == std::vector<Dim>{shape_of(n.inputs[1])[0], x[1]}); break;
      case OpType::insert:
      case OpType::add_image: {
        const std::vector<Dim> rows = shape_of(n.inputs[1]);
        fit(x == y && x.size() == 2 && rows.size() == 2 && rows[0] == x[0] &&
            n.integer("begin") + x[1].value <= rows[1].value);
        break;
      }
      case OpType::pick: fit(x.size() == 2 && y == std::vector<Dim>{Symbol::rows, x[1]}); break;
      case OpType::rms_norm: {
        const Extent width = n.integer("width");
        const std::vector<Dim> weight = shape_of(n.inputs[1]);
        fit(x == y && x.size() == 2 && (weight == std::vector<Dim>{width} || weight == std::vector<Dim>{x[1]}) &&
            width > 0 && x[1].value % width == 0);
        break;
      }
      case OpType::unit_norm: {
        const Extent width = n.integer("width");
        fit(x == y && x.size() == 2 && width > 0 && x[1].value % width == 0);
        break;
      }
      case OpType::layer_norm:
        fit(x == y && (n.inputs.size() < 2 || shape_of(n.inputs[1]) == std::vector<Dim>{x.back()}));
        break;
      case OpType::matmul: {
        const std::vector<Dim> w = shape_of(n.inputs[1]);
        fit(x.size() == 2 && w.size() == 2 && w[1] == x[1] && y == std::vector<Dim>{x[0], w[0]} &&
            (n.inputs.size() < 3 || shape_of(n.inputs[2]) == std::vector<Dim>{w[0]}));
        break;
      }
      case OpType::columns: {
        const Extent begin = n.integer("begin"), count = n.integer("count");
        fit(x.size() == 2 && begin >= 0 && begin + count <= x[1].value && y == std::vector<Dim>{x[0], count});
        break;
      }
      case OpType::group_columns: {
        const Extent groups = n.integer("groups"), begin = n.integer("begin"), count = n.integer("count");
        fit(x.size() == 2 && groups > 0 && x[1].value % groups == 0 && begin >= 0 &&
            begin + count <= x[1].value / groups && y == std::vector<Dim>{x[0], groups * count});
        break;
      }
      case OpType::group_concat: {
        const Extent groups = n.integer("groups");
        const std::vector<Dim> second = shape_of(n.inputs[1]);
        fit(x.size() == 2 && second.size() == 2 && groups > 0 && x[0] == second[0] && x[1].value % groups == 0 &&
            second[1].value % groups == 0 && y == std::vector<Dim>{x[0], x[1].value + second[1].value});
        break;
      }
      case OpType::group_matmul: {
        const std::vector<Dim> w = shape_of(n.inputs[1]);
        fit(x.size() == 2 && w.size() == 3 && x[1].value == w[0].value * w[2].value &&
            y == std::vector<Dim>{x[0], w[0].value * w[1].value});
        break;
      }
      case OpType::rope: {
        const Extent heads = n.integer("heads");
        fit(x == y && heads > 0 && x[1].value % heads == 0 && n.integer("dims") <= x[1].value / heads);
        break;
      }
      case OpType::attention: {
        const Extent heads = n.integer("heads"), kv = n.integer("kv_heads");
        const std::vector<Dim> k = shape_of(n.inputs[1]), cache = shape_of(n.inputs[3]);
        fit(x == y && heads > 0 && kv > 0 && heads % kv == 0 && x[1].value / heads * kv == k[1].value &&
            k == shape_of(n.inputs[2]) &&
            cache == std::vector<Dim>{n.integer("window") > 0 ? Symbol::recent : Symbol::length, k[1]} &&
            cache == shape_of(n.inputs[4]) && (n.inputs[3] == n.inputs[4]) == (n.inputs[1] == n.inputs[2]) &&
            (n.inputs.size() < 6 || shape_of(n.inputs[5]) == std::vector<Dim>{heads}));
        for (std::size_t i : {std::size_t{3}, std::size_t{4}})
          if (known.at(n.inputs[i])->storage != TensorStorage::kv_cache) problem(n.id, n.inputs[i] + " is not a cache");
        break;
      }
      case OpType::mul_each: fit(x == y && shape_of(n.inputs[1]) == std::vector<Dim>{x[0], 1}); break;
      case OpType::mul:
        fit(x == y && (shape_of(n.inputs[1]) == x || shape_of(n.inputs[1]) == std::vector<Dim>{x.back()} ||
                       shape_of(n.inputs[1]) == std::vector<Dim>{1}));
        break;
      case OpType::add: fit(x == y && (shape_of(n.inputs[1]) == x)); break;
      case OpType::experts: {
        const std::vector<Dim> router = shape_of(n.inputs[1]), gate = shape_of(n.inputs[2]),
                               down = shape_of(n.inputs[4]);
        fit(x == y && router.size() == 2 && router[1] == x[1] && gate.size() == 3 && gate[0] == router[0] &&
            gate[2] == x[1] && gate == shape_of(n.inputs[3]) && down == std::vector<Dim>{gate[0], gate[2], gate[1]} &&
            n.integer("used") >= 1 && n.integer("used") <= router[0].value);
        const auto fit_change = [&](const char* name, const std::vector<Dim>& out_in) {
          const auto at = static_cast<std::size_t>(n.integer(name));
          if (at == 0) return;
          const std::vector<Dim> a = shape_of(n.inputs[at]), b = shape_of(n.inputs[at + 1]);
          fit(a.size() == 3 && a == std::vector<Dim>{gate[0], a[1], out_in[1]} &&
              b == std::vector<Dim>{gate[0], out_in[0], a[1]});
        };
        fit_change("gate_up_change", {2 * gate[1].value, gate[2]});
        fit_change("down_change", {gate[2], gate[1]});
        if (const auto at = static_cast<std::size_t>(n.integer("routed")); at > 0)
          fit(shape_of(n.inputs[at]) == x && shape_of(n.inputs[at + 1]) == std::vector<Dim>{gate[0]});
        break;
      }
      case OpType::short_conv: {
        const Extent kernel = n.integer("kernel");
        fit(x == y && kernel > 0 && shape_of(n.inputs[1])[0] == x[1] &&
            shape_of(n.inputs[2]) == std::vector<Dim>{Symbol::sequences, (kernel - 1) * x[1].value} &&
            (n.inputs.size() < 4 || shape_of(n.inputs[3]) == std::vector<Dim>{x[1]}));
        require_state(n.inputs[2]);
        break;
      }
      case OpType::selective_scan: {
        const std::vector<Dim> rates = shape_of(n.inputs[2]), b = shape_of(n.inputs[3]);
        fit(x == y && x == shape_of(n.inputs[1]) && rates.size() == 2 && rates[0] == x[1] &&
            b == std::vector<Dim>{x[0], rates[1]} && b == shape_of(n.inputs[4]) &&
            shape_of(n.inputs[5]) == std::vector<Dim>{x[1]} &&
            shape_of(n.inputs[6]) == std::vector<Dim>{Symbol::sequences, x[1].value * rates[1].value});
        require_state(n.inputs[6]);
        break;
      }
      case OpType::state_space_scan: {
        const Extent heads = n.integer("heads"), groups = n.integer("groups");
        const std::vector<Dim> b = shape_of(n.inputs[3]), a_head{heads};
        fit(x == y && heads > 0 && groups > 0 && x[1].value % heads == 0 && heads % groups == 0 && b.size() == 2 &&
            b[1].value % groups == 0 && b == shape_of(n.inputs[4]) &&
            shape_of(n.inputs[1]) == std::vector<Dim>{x[0], heads} && shape_of(n.inputs[7]) == a_head &&
            shape_of(n.inputs[6]) == std::vector<Dim>{Symbol::sequences, x[1].value * (b[1].value / groups)});
        require_state(n.inputs[6]);
        break;
      }
      case OpType::delta_scan: {
        const Extent heads = n.integer("heads"), groups = n.integer("groups");
        const std::vector<Dim> v = shape_of(n.inputs[2]), by_head{x[0], heads}, a_head{heads};
        fit(v == y && x == shape_of(n.inputs[1]) && heads > 0 && groups > 0 && v[1].value % heads == 0 &&
            x[1].value % groups == 0 && heads % groups == 0 && shape_of(n.inputs[3]) == by_head &&
            shape_of(n.inputs[4]) == a_head && shape_of(n.inputs[5]) == by_head && shape_of(n.inputs[7]) == a_head &&
            shape_of(n.inputs[6]) == std::vector<Dim>{Symbol::sequences, x[1].value / groups * v[1].value});
        require_state(n.inputs[6]);
        break;
      }
      case OpType::mix_streams: {
        const std::vector<Dim> c = shape_of(n.inputs[1]);
        const Extent streams = n.integer("streams");
        fit(x.size() == 2 && c.size() == 2 && streams > 0 && x[1].value % streams == 0 && c[1].value % streams == 0 &&
            c[0] == x[0] && y == std::vector<Dim>{x[0], c[1].value / streams * (x[1].value / streams)});
        break;
      }
      case OpType::add_to_streams:
      case OpType::match_magnitude: {
        const std::vector<Dim> one = shape_of(n.inputs[1]);
        fit(x == y && x.size() == 2 && one.size() == 2 && one[0] == x[0] && x[1].value % one[1].value == 0 &&
            n.integer("first") * one[1].value < x[1].value);
        break;
      }
      case OpType::tanh:
      case OpType::cut_below:
      case OpType::silu:
      case OpType::gelu:
      case OpType::gelu_tanh:
      case OpType::relu2:
      case OpType::xielu:
      case OpType::grow:
      case OpType::sigmoid:
      case OpType::scale:
      case OpType::clamp:
      case OpType::soft_cap: fit(x == y); break;
    }
  }
  if (!made.contains(output)) problem(output, "the output is never made");
  if (!problems.empty()) throw InternalError(fmt::format("model graph of {}:{}", family, problems));
}

}  // namespace weft::llm
