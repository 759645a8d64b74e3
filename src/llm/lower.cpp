#include "llm/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/cache.hpp"
#include "graph/delta_scan.hpp"
#include "graph/op.hpp"
#include "graph/state_scan.hpp"
#include "llm/adapter.hpp"
#include "llm/lower_parts.hpp"
#include "llm/mixture.hpp"
#include "weft/autocast.hpp"
#include "weft/checkpoint.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/state_space.hpp"

namespace weft::llm {
namespace {

constexpr Extent kScanChunk =
    64;  // steps, where a device has no kernel: scores within chunks grow with it, states shrink

class Lowering {
 public:
  Lowering(const LowerContext& context, const PassInputs& inputs) : context_(context), inputs_(inputs) {
    for (const OpNode& node : context.graph.nodes)
      if (node.op == OpType::attention) attended_values_.insert(node.inputs[2]);
    // Where an adapter adds to values, its sum has the product's name, and the product may have a gain.
    for (auto node = context.graph.nodes.rbegin(); node != context.graph.nodes.rend(); ++node) {
      const bool changes =
          node->op == OpType::add || (node->op == OpType::mul && node->inputs[1].ends_with(low_rank_gain("")));
      const bool is_norm = node->op == OpType::unit_norm;
      if ((changes || is_norm) && attended_values_.contains(node->output)) attended_values_.insert(node->inputs[0]);
    }
  }

  Tensor run() {
    values_[context_.graph.input] = inputs_.tokens;
    values_[context_.graph.positions] = inputs_.positions;
    const auto& nodes = context_.graph.nodes;
    if (context_.recomputes)  // tables that all layers read belong to none of them
      for (const OpNode& node : nodes)
        if (node.op == OpType::rope)
          for (const bool sine : {false, true}) angles(node.integer("local") != 0, sine);
    for (auto node = nodes.begin(); node != nodes.end();) {
      if (inputs_.stops_before_head && node->op == OpType::pick) return input(*node, 0);
      if (!context_.recomputes || node->layer < 0) {
        run(*node++);
        continue;
      }
      const auto end = std::find_if(node, nodes.end(), [&](const OpNode& n) { return n.layer != node->layer; });
      run_checkpointed({node, end}, {end, nodes.end()});
      node = end;
    }
    return values_.at(context_.graph.output);
  }

 private:
  void run(const OpNode& node) {
    try {
      values_[node.output] = one(node).named(node.id);
    } catch (Error& error) {
      error.add_context("lowering " + node.id);
      throw;
    }
  }

  /// A layer as a checkpoint of the activations that it reads. All that later nodes read of it is one activation, else it is kept.
  void run_checkpointed(std::span<const OpNode> layer, std::span<const OpNode> later) {
    std::set<std::string> made, read, kept;
    for (const OpNode& node : layer) {
      for (const std::string& name : node.inputs)
        if (!made.contains(name) && context_.graph.at(name).storage == TensorStorage::activation &&
            context_.graph.at(name).element == Element::f32)
          read.insert(name);
      made.insert(node.output);
    }
    for (const OpNode& node : later)
      for (const std::string& name : node.inputs)
        if (made.contains(name)) kept.insert(name);
    if (kept.size() != 1 || read.empty()) {
      for (const OpNode& node : layer) run(node);
      return;
    }
    std::vector<Tensor> inputs;
    for (const std::string& name : read) inputs.push_back(values_.at(name));
    // Only what depends on an input is computed again. Unpacked weights depend on the list of their rows; else those of all layers
    // would wait in memory for their gradients.
    inputs.push_back(arange(rows_of_weights(layer), DType::i32, inputs_.tokens.device()));
    const std::map<std::string, Tensor> before = values_;
    const Tensor y = checkpoint(
        [&](std::span<const Tensor> given) {
          std::size_t i = 0;
          for (const std::string& name : read) values_[name] = given[i++];
          weight_rows_ = given.back();
          for (const OpNode& node : layer) run(node);
          return with_router_logits(values_.at(*kept.begin()));
        },
        inputs);
    weight_rows_ = {};
    values_ = before;
    values_[*kept.begin()] = without_router_logits(y, context_.graph.at(*kept.begin()).shape[1].value);
  }
  /// A checkpoint has one result, so logits of a router leave it as further columns.
  Tensor with_router_logits(const Tensor& y) {
    if (!own_logits_.defined()) return y;
    const Tensor both[] = {y, cast(own_logits_, y.dtype())};
    own_logits_ = {};
    return concat(both, 1);
  }
  Tensor without_router_logits(const Tensor& y, Extent width) {
    if (y.dim(1) == width) return y;
    context_.router_logits->push_back(narrow(y, 1, width, y.dim(1) - width));
    return narrow(y, 1, 0, width);
  }
  void note_router_logits(const Tensor& logits) {
    if (!context_.router_logits) return;
    if (weight_rows_.defined())
      own_logits_ = logits;
    else
      context_.router_logits->push_back(logits);
  }

  /// The most rows that a matrix of these nodes has.
  Extent rows_of_weights(std::span<const OpNode> nodes) const {
    Extent rows = 1;
    for (const OpNode& node : nodes)
      for (const std::string& name : node.inputs) {
        const TensorDesc& tensor = context_.graph.at(name);
        if (tensor.storage == TensorStorage::constant && tensor.shape.size() > 1)
          rows = std::max(rows, graph::rows_of(constant(name).shape()));
      }
    return rows;
  }

  Tensor input(const OpNode& node, std::size_t i) const {
    auto it = values_.find(node.inputs[i]);
    return it != values_.end() ? it->second : constant(node.inputs[i]);
  }
  const Tensor& constant(const std::string& name) const {
    if (context_.trained)
      if (const auto found = context_.trained->find(name); found != context_.trained->end()) return found->second;
    return context_.weights.at(name);
  }
  /// A matrix that products with gradients read.
  Tensor unpacked(const Tensor& weight) const {
    if (!is_packed_matrix(weight)) return weight;
    if (!weight_rows_.defined()) return cast(weight, autocast_type());
    const Tensor rows = packed_rows(weight, narrow(weight_rows_, 0, 0, graph::rows_of(weight.shape())));
    return cast(reshape(rows, weight.shape()), autocast_type());
  }
  /// x W^T + b, for any type of W. Exact: x is not rounded to eight bits.
  Tensor product(const Tensor& x, const std::string& name, const Tensor& bias = {}, bool exact = false) const {
    const Tensor& weight = constant(name);
    if (inputs_.whole) return linear(x, unpacked(weight), bias);
    return is_packed_matrix(weight) ? packed_linear(x, weight, bias, exact || context_.exact) : linear(x, weight, bias);
  }
  Tensor one(const OpNode& node) {
    switch (node.op) {
      case OpType::embedding: {
        const Tensor tokens = input(node, 1);
        const Extent known = node.integer("known");
        if (known == 0) return embedding(input(node, 0), tokens);
        return embedding(input(node, 0), where(tokens < static_cast<double>(known), tokens, zeros_like(tokens)));
      }
      case OpType::insert:
        if (!inputs_.image_rows.defined()) return input(node, 0);
        return elementwise("where", {unsqueeze(cast(inputs_.is_image, DType::boolean), 1),
                                     columns_of_images(0, input(node, 0).dim(1)), input(node, 0)});
      case OpType::add_image:
        if (!inputs_.image_rows.defined()) return input(node, 0);
        return input(node, 0) + columns_of_images(node.integer("begin"), input(node, 0).dim(1));
      case OpType::pick: return inputs_.rows.defined() ? embedding(input(node, 0), inputs_.rows) : input(node, 0);
      case OpType::rms_norm: return normed(node);
      case OpType::unit_norm: return unit_norm(input(node, 0), node.integer("width"), node.real("eps"));
      case OpType::layer_norm: {
        Tensor weight = node.inputs.size() > 1 ? input(node, 1) : Tensor();
        if (const double offset = node.real("weight_offset"); offset != 0) weight = weight + offset;
        return layer_norm(input(node, 0), weight, node.inputs.size() > 2 ? input(node, 2) : Tensor(), node.real("eps"));
      }
      case OpType::matmul:
        // The values of attention are a small product, and rounding to eight bits there costs the most: without it the
        // logits of SmolLM2 differ by 0.186 from f32, with it by 0.216. A GPU rounds to halves at most.
        return product(product_input(node), node.inputs[1], node.inputs.size() > 2 ? input(node, 2) : Tensor(),
                       attended_values_.contains(node.output) && input(node, 0).device().kind == Device::Kind::cpu);
      case OpType::columns: return narrow(input(node, 0), 1, node.integer("begin"), node.integer("count"));
      case OpType::group_columns: {
        const Tensor x = input(node, 0);
        const Extent groups = node.integer("groups"), count = node.integer("count");
        const Tensor parts = reshape(x, {x.dim(0), groups, x.dim(1) / groups});
        return reshape(narrow(parts, 2, node.integer("begin"), count), {x.dim(0), groups * count});
      }
      case OpType::group_concat: {
        const Tensor x = input(node, 0), y = input(node, 1);
        const Extent groups = node.integer("groups");
        const Tensor parts[] = {reshape(x, {x.dim(0), groups, x.dim(1) / groups}),
                                reshape(y, {y.dim(0), groups, y.dim(1) / groups})};
        return reshape(concat(parts, 2), {x.dim(0), x.dim(1) + y.dim(1)});
      }
      case OpType::group_matmul: {
        const Tensor x = input(node, 0), w = input(node, 1);  // [T, G K], [G, N, K]
        const Tensor groups = permute(reshape(x, {x.dim(0), w.dim(0), w.dim(2)}), {1, 0, 2});
        return reshape(permute(matmul(groups, transpose(w)), {1, 0, 2}), {x.dim(0), w.dim(0) * w.dim(1)});
      }
      case OpType::rope: return turned(node);
      case OpType::attention: return attended(node);
      case OpType::silu: return elementwise("silu", {input(node, 0)});
      case OpType::gelu: return elementwise("gelu", {input(node, 0)});
      case OpType::gelu_tanh: return elementwise("gelu_tanh", {input(node, 0)});
      case OpType::relu2: {
        const Tensor positive = elementwise("relu", {input(node, 0)});
        return positive * positive;
      }
      case OpType::xielu: {
        const auto number = [&](std::size_t i, const char* name) {
          return node.inputs.size() > 1 ? input(node, i)
                                        : Tensor(full({1}, node.real(name), DType::f32, input(node, 0).device()));
        };
        return xielu(input(node, 0), number(1, "a"), number(2, "b"), number(3, "beta"), number(4, "eps"));
      }
      case OpType::sigmoid: return elementwise("sigmoid", {input(node, 0)});
      case OpType::tanh: return elementwise("tanh", {input(node, 0)});
      case OpType::cut_below: return cut_below(input(node, 0), node.real("deviations"));
      case OpType::mix_streams:
        return mix_streams(input(node, 0), input(node, 1), node.integer("streams"), node.real("offset"));
      case OpType::add_to_streams: return add_to_streams(input(node, 0), input(node, 1), node.integer("first"));
      case OpType::match_magnitude: return match_magnitude(input(node, 0), input(node, 1));
      case OpType::mul_each:
      case OpType::mul: return input(node, 0) * input(node, 1);
      case OpType::add: return input(node, 0) + input(node, 1);
      case OpType::scale: return input(node, 0) * node.real("factor");
      case OpType::soft_cap: return elementwise("tanh", {input(node, 0) / node.real("cap")}) * node.real("cap");
      case OpType::clamp: return clamped(input(node, 0), node.real("limit"));
      case OpType::grow:
        return input(node, 0) *
               growth(inputs_.positions, node.integer("each"), node.real("offset"), node.real("factor"));
      case OpType::experts: return mixed(node);
      case OpType::short_conv: return convolved(node);
      case OpType::selective_scan: return scanned(node);
      case OpType::state_space_scan: return scanned_by_heads(node);
      case OpType::delta_scan: return scanned_by_delta(node);
    }
    throw InternalError(fmt::format("llm: no lowering of {}", name_of(node.op)));
  }

  Tensor product_input(const OpNode& node) const {
    const Tensor x = input(node, 0);
    const bool drops = context_.adapter_dropout > 0 && node.inputs[1].ends_with(low_rank_a(""));
    return drops ? dropout(x, context_.adapter_dropout) : x;
  }

  Tensor columns_of_images(Extent begin, Extent count) const {
    return count == inputs_.image_rows.dim(1) ? inputs_.image_rows : narrow(inputs_.image_rows, 1, begin, count);
  }

  Tensor normed(const OpNode& node) const {
    const Tensor x = input(node, 0);
    const Extent width = node.integer("width");
    Tensor weight = input(node, 1);
    if (const double offset = node.real("weight_offset"); offset != 0) weight = weight + offset;
    if (width == x.dim(1)) return rms_norm(x, weight, node.real("eps"));
    const Tensor parts = reshape(x, {x.dim(0), x.dim(1) / width, width});
    if (weight.dim(0) == width) return reshape(rms_norm(parts, weight, node.real("eps")), x.shape());
    const Tensor one = ones({width}, DType::f32, x.device());
    return reshape(rms_norm(parts, one, node.real("eps")), x.shape()) * weight;
  }

  /// The position of each token that turns its pairs, [T, 1], or [T, pairs] where pairs turn by several axes.
  Tensor place() const {
    const auto column = [](const Tensor& list) { return unsqueeze(cast(list, DType::f32), 1); };
    const Tensor time = column(inputs_.positions);
    if (!inputs_.height.defined()) return time;
    const auto axis = [&](Extent i) { return narrow(context_.axes, 0, i, 1); };
    return time * axis(0) + column(inputs_.height) * axis(1) + column(inputs_.width) * axis(2);
  }

  /// Cosine or sine of each token's angles, [T, pairs], the same for every layer.
  const Tensor& angles(bool local, bool sine) {
    Tensor& table = angles_[local ? 1 : 0][sine ? 1 : 0];
    if (!table.defined()) {
      const Tensor& sets = local ? context_.local_frequencies : context_.frequencies;
      const Tensor angle = place() * (inputs_.factors.defined() ? embedding(sets, inputs_.factors) : sets);
      table = elementwise(sine ? "sin" : "cos", {angle});
      if (!local && context_.magnitude != 1) table = table * context_.magnitude;
    }
    return table;
  }

  // y = x cos + partner(x) (-+sin): the partner is the same elements in another order, which is a view.
  Tensor turned(const OpNode& node) {
    const Tensor x = input(node, 0);
    const Extent heads = node.integer("heads"), dims = node.integer("dims"), tokens = x.dim(0),
                 width = x.dim(1) / heads;
    const bool halves = std::get<std::string>(node.attributes.at("pairs")) == "halves";
    const bool local = node.integer("local") != 0;
    const Tensor all = reshape(x, {tokens, heads, width});
    const Tensor part = dims == width ? all : narrow(all, 2, 0, dims);
    const Extent pairs = dims / 2;
    const Shape split = halves ? Shape{tokens, heads, 2, pairs} : Shape{tokens, heads, pairs, 2};
    const int member = halves ? 2 : 3;
    const Tensor parted = reshape(part, split), partner = flip(parted, {member});
    const Shape spread = halves ? Shape{tokens, 1, 1, pairs} : Shape{tokens, 1, pairs, 1};
    const Tensor c = reshape(angles(local, false), spread), s = reshape(angles(local, true), spread);
    const Tensor sign = reshape(cast(arange(2, DType::i32, x.device()), DType::f32) * 2.0 - 1.0,
                                halves ? Shape{1, 1, 2, 1} : Shape{1, 1, 1, 2});
    const Tensor y = reshape(parted * c + partner * (s * sign), {tokens, heads, dims});
    if (dims == width) return reshape(y, x.shape());
    const Tensor both[] = {y, narrow(all, 2, dims, width - dims)};
    return reshape(concat(both, 2), x.shape());
  }

  Tensor attended(const OpNode& node) {
    const Tensor q = input(node, 0);
    if (inputs_.whole)
      return attend_whole(q, input(node, 1), input(node, 2),
                          {node.integer("heads"), node.integer("kv_heads"), scale_of(node), node.integer("window"),
                           node.real("soft_cap"), node.inputs.size() > 5 ? input(node, 5) : Tensor(),
                           node.integer("chunk") > 0 ? before_chunk(node.integer("chunk")) : Tensor(),
                           slopes_of(node.integer("heads"), node.real("alibi"), node.real("slope_factor"))},
                          *inputs_.whole);
    const bool has_own = node.integer("window") > 0 && inputs_.window_first.defined();
    const Extent heads = node.integer("heads"), window = has_own ? 0 : node.integer("window"),
                 ring = window > 0 ? context_.ring : 0;
    const PassInputs::Places& places = ring > 0 ? inputs_.ring : inputs_.all;
    const Extent chunk = node.integer("chunk");
    const bool is_shared = node.integer("shared") != 0;  // an earlier layer has written the rows
    const auto cached = [&](std::size_t value, std::size_t cache) {
      Variable& variable = context_.caches.at(node.inputs[cache]);
      if (is_shared) return Tensor(variable.value());
      variable.assign(write_rows(variable, input(node, value), places.at, context_.cache_type));
      return variable.value();
    };
    const Tensor k = cached(1, 3), v = node.inputs[3] == node.inputs[4] ? k : cached(2, 4);
    const Extent width = q.dim(1) / heads;
    const graph::CacheAttention attributes{
        context_.cache_type, node.integer("kv_heads"), scale_of(node), window, node.real("soft_cap"), ring,
        context_.exact};
    const Tensor y = graph::call(graph::cache_attention_row(),
                                 {reshape(q, {q.dim(0), heads, width}), k, v,
                                  has_own     ? inputs_.window_first
                                  : chunk > 0 ? places.first + before_chunk(chunk)
                                              : places.first,
                                  has_own     ? inputs_.window_length
                                  : chunk > 0 ? inputs_.length - before_chunk(chunk)
                                              : inputs_.length,
                                  node.inputs.size() > 5 ? input(node, 5) : Tensor(),
                                  slopes_of(heads, node.real("alibi"), node.real("slope_factor"))},
                                 attributes, Where::current());
    return reshape(y, q.shape());
  }

  /// Positions of a sequence before the chunk of each token.
  Tensor before_chunk(Extent chunk) const { return inputs_.positions - remainder(inputs_.positions, chunk); }

  double scale_of(const OpNode& node) const {
    const double scale = node.real("scale");
    const Extent width = input(node, 0).dim(1) / node.integer("heads");
    return scale == 0 ? 1 / std::sqrt(static_cast<double>(width)) : scale;
  }

  /// What scores of each head lose for each position between query and key: `factor` times powers of 2 down to 2^-most.
  /// Where the number of heads is no power of two, further ones lie between the first.
  const Tensor& slopes_of(Extent heads, double most, double factor) {
    if (most == 0 || slopes_.defined()) return slopes_;
    Extent even = 1;
    while (2 * even <= heads) even *= 2;
    std::vector<float> slopes;
    for (Extent h = 0; h < heads; ++h)
      slopes.push_back(static_cast<float>(
          factor * std::exp2(h < even
                                 ? -most * static_cast<double>(h + 1) / static_cast<double>(even)
                                 : -most * static_cast<double>(2 * (h - even) + 1) / static_cast<double>(2 * even))));
    slopes_ = tensor_from_bytes(slopes.data(), {heads}, DType::f32, inputs_.positions.device());
    return slopes_;
  }

  Tensor mixed(const OpNode& node) {
    const Tensor x = input(node, 0);
    const bool has_biases = node.integer("biases") != 0, is_corrected = node.integer("corrected") != 0;
    const auto place_of = [&](const char* name) { return static_cast<std::size_t>(node.integer(name)); };
    const std::size_t routed = place_of("routed");
    const Tensor logits =
        product(routed > 0 ? input(node, routed) : x, node.inputs[1], has_biases ? input(node, 5) : Tensor());
    note_router_logits(logits);
    ChosenExperts chosen =
        choose_experts(logits, is_corrected ? input(node, has_biases ? 9 : 5) : Tensor(),
                       {node.integer("used"), node.integer("shares") != 0, node.integer("sigmoid") != 0,
                        node.integer("groups", 1), node.integer("groups_used"), node.real("factor", 1)});
    if (routed > 0) chosen.weights = chosen.weights * take(input(node, routed + 1), chosen.numbers);
    // Weights of types without products are plain, and then those beside them must be.
    bool is_plain = inputs_.whole.has_value();
    for (std::size_t i = 2; i < 5; ++i) is_plain |= !is_packed_matrix(constant(node.inputs[i]));
    for (const std::size_t at : {place_of("gate_up_change"), place_of("down_change")})
      if (at > 0) is_plain |= !is_packed_matrix(constant(node.inputs[at]));
    const auto change = [&](const char* name) {
      const std::size_t at = place_of(name);
      if (at == 0) return ExpertChange{};
      const Tensor &a = constant(node.inputs[at]), &b = constant(node.inputs[at + 1]);
      return is_plain ? ExpertChange{unpacked(a), unpacked(b)} : ExpertChange{a, b};
    };
    const auto expert = [&](std::size_t i) {
      const Tensor& weight = constant(node.inputs[i]);
      return Expert{is_plain ? unpacked(weight) : weight, has_biases ? input(node, i + 4) : Tensor(),
                    context_.graph.at(node.inputs[i]).shape[1].value};
    };
    return mixture(
        x, chosen,
        {expert(2), expert(3), expert(4), change("gate_up_change"), change("down_change"), node.real("alpha"),
         node.real("limit"), node.integer("plain") != 0, node.integer("on_input") != 0, node.integer("gelu") != 0},
        context_.exact);
  }

  // ---- Layers with states. Tokens are [B, L, ...]: one sequence of T, or T sequences of one; of whole rows, a sequence each.

  Extent batch() const {
    if (inputs_.whole) return inputs_.whole->rows;
    return inputs_.states.is_one_sequence ? 1 : inputs_.positions.dim(0);
  }
  Tensor by_sequence(const Tensor& x, const Shape& rest) const {
    Shape shape{batch(), x.dim(0) / batch()};
    for (const Extent extent : rest) shape.push_back(extent);
    return reshape(x, shape);
  }
  /// Calls a row of graph/state_scan.hpp on the state that the node's input names, which it changes in place; gives the other
  /// result. `state` is the place of the cache among the operands, behind which come the places of the sequences.
  Tensor advanced(const graph::OpRow& row, graph::Tensors operands, std::size_t state, const std::string& name,
                  graph::Words words) const {
    Variable& variable = context_.caches.at(name);
    operands.insert(operands.begin() + static_cast<std::ptrdiff_t>(state),
                    {variable.value(), narrow(inputs_.states.sequence, 0, 0, batch()),
                     narrow(inputs_.states.is_first, 0, 0, batch())});
    const auto results = graph::call_nodes(row, std::move(operands), std::move(words));
    variable.assign(Tensor(results[0]));
    return Tensor(results[1]);
  }
  /// Scans of whole rows are made in f32, whatever the products around them give.
  Tensor wide(const Tensor& x) const { return inputs_.whole ? cast(x, DType::f32) : x; }
  /// Steps, which are zero for padding, so that it changes no state.
  Tensor without_padding(const Tensor& dt) const {
    if (inputs_.whole) return dt;  // behind a row's text, where nothing looks back at it
    return elementwise("where", {unsqueeze(inputs_.states.sequence >= 0.0, 1), dt, zeros_like(dt)});
  }
  Tensor rates(const OpNode& node, std::size_t operand = 2) const {
    const Tensor a = input(node, operand);
    return node.integer("log") != 0 ? -exp(a) : a;
  }

  Tensor convolved(const OpNode& node) const {
    const Tensor x = input(node, 0);
    const Extent width = x.dim(1), kernel = node.integer("kernel");
    if (inputs_.whole)
      return reshape(short_convolution(by_sequence(wide(x), {width}), reshape(wide(input(node, 1)), {width, kernel}),
                                       node.inputs.size() > 3 ? wide(input(node, 3)) : Tensor())
                         .output,
                     x.shape());
    const graph::OpRow& row = graph::state_convolution_row();
    const Tensor bias = node.inputs.size() > 3 ? input(node, 3) : zeros({width}, DType::f32, x.device());
    const Tensor count =
        inputs_.states.is_one_sequence ? inputs_.states.count : Tensor(full({1}, 1.0, DType::i32, x.device()));
    return reshape(
        advanced(row, {by_sequence(x, {width}), reshape(input(node, 1), {width, kernel}), bias, count}, 3,
                 node.inputs[2], words_of(row.attributes, graph::StateConvolutionAttributes{.cached = true})),
        x.shape());
  }

  Tensor scanned(const OpNode& node) const {
    const Tensor x = wide(input(node, 0)), b = input(node, 3), skip = input(node, 5);
    const Extent width = x.dim(1), states = b.dim(1);
    const Tensor dt = without_padding(elementwise("softplus", {wide(input(node, 1))}));
    const Tensor y = scan(node, by_sequence(x, {width, 1}), dt, rates(node), 1, states);
    return reshape(y, x.shape()) + x * skip;
  }
  /// x [B, L, H, P] through the scan, with b and c of `groups`.
  Tensor scan(const OpNode& node, const Tensor& x, const Tensor& dt, const Tensor& a, Extent groups,
              Extent states) const {
    const Shape shared{groups, states};
    if (inputs_.whole) {
      const graph::OpRow& row = graph::state_scan_row();
      const Tensor first = zeros({x.dim(0), x.dim(2), x.dim(3), states}, DType::f32, x.device());
      return Tensor(graph::call_nodes(row,
                                      {x, by_sequence(dt, {x.dim(2)}), a, by_sequence(wide(input(node, 3)), shared),
                                       by_sequence(wide(input(node, 4)), shared), first},
                                      words_of(row.attributes, graph::StateScanAttributes{.chunk = kScanChunk}))[1]);
    }
    const graph::OpRow& row = graph::state_scan_row();
    return advanced(
        row,
        {x, by_sequence(dt, {x.dim(2)}), a, by_sequence(input(node, 3), shared), by_sequence(input(node, 4), shared)},
        5, node.inputs[6], words_of(row.attributes, graph::StateScanAttributes{.chunk = kScanChunk, .cached = true}));
  }

  Tensor scanned_by_heads(const OpNode& node) const {
    const Tensor x = wide(input(node, 0)), b = input(node, 3);
    const Extent heads = node.integer("heads"), groups = node.integer("groups"), width = x.dim(1) / heads,
                 states = b.dim(1) / groups;
    Tensor dt = elementwise("softplus", {wide(input(node, 1)) + input(node, 7)});
    if (const double least = node.real("dt_least"); least > 0)
      dt = elementwise("maximum", {dt, scalar_like(least, dt)});
    if (const double most = node.real("dt_most"); most > 0) dt = elementwise("minimum", {dt, scalar_like(most, dt)});
    const Tensor by_head = by_sequence(x, {heads, width});
    const Tensor y = scan(node, by_head, without_padding(dt), reshape(rates(node), {heads, 1}), groups, states);
    return reshape(y + by_head * reshape(input(node, 5), {heads, 1}), x.shape());
  }

  Tensor scanned_by_delta(const OpNode& node) const {
    const Tensor q = wide(input(node, 0)), v = wide(input(node, 2));
    const Extent heads = node.integer("heads"), groups = node.integer("groups"), width = v.dim(1) / heads,
                 again = node.integer("turns") != 0 ? heads / groups : 1, keys = q.dim(1) / groups;
    const auto heads_of = [&](const Tensor& x, double length) {
      const Tensor all = heads_with_length(x, groups, length, again);
      return by_sequence(all, {all.dim(1), all.dim(2)});
    };
    // Without decay and without beta a step changes no state.
    const Tensor decay =
        without_padding(elementwise("softplus", {wide(input(node, 3)) + input(node, 7)}) * rates(node, 4));
    const graph::OpRow& row = graph::delta_scan_row();
    const graph::Tensors operands = {heads_of(q, 1 / std::sqrt(static_cast<double>(keys))),
                                     heads_of(wide(input(node, 1)), 1), by_sequence(v, {heads, width}),
                                     by_sequence(decay, {heads}),
                                     by_sequence(without_padding(wide(input(node, 5))), {heads})};
    if (!inputs_.whole)
      return reshape(advanced(row, operands, 5, node.inputs[6],
                              words_of(row.attributes, graph::DeltaScanAttributes{.cached = true})),
                     v.shape());
    graph::Tensors whole = operands;
    whole.push_back(zeros({batch(), heads, keys, width}, DType::f32, v.device()));
    const graph::Words words = words_of(row.attributes, graph::DeltaScanAttributes{});
    return reshape(Tensor(graph::call_nodes(row, std::move(whole), words)[1]), v.shape());
  }

  const LowerContext& context_;
  const PassInputs& inputs_;
  std::map<std::string, Tensor> values_;
  std::set<std::string> attended_values_;
  Tensor angles_[2][2];
  Tensor slopes_;
  Tensor weight_rows_;  // inside of a checkpoint: 0, 1, ... for the rows of weights
  Tensor own_logits_;   // inside of a checkpoint: of the router of its layer
};

}  // namespace

Tensor lower(const LowerContext& context, const PassInputs& inputs) { return Lowering(context, inputs).run(); }

}  // namespace weft::llm
