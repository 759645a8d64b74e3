#include "grid/layer_rows.hpp"

#include <iterator>

#include "base/checked.hpp"
#include "grid/layer_functions.hpp"

namespace weft::grid {
namespace {

using nn::Init;
using Specs = std::vector<ParameterSpec>;

Specs dense_parameters(const Layer& l) { return {{"weight", {l.outputs, l.inputs}, Init::kaiming_uniform(l.inputs)}}; }

Specs attention_parameters(const Layer& l) {
  const Extent d = l.inputs, kv = key_width(l);
  const Init init = Init::kaiming_uniform(d);
  return {{"query", {d, d}, init},   {"key", {kv, d}, init},   {"value", {kv, d}, init},   {"output", {d, d}, init},
          {"query_bias", {d}, init}, {"key_bias", {kv}, init}, {"value_bias", {kv}, init}, {"output_bias", {d}, init}};
}

Specs swiglu_parameters(const Layer& l) {
  const Init in = Init::kaiming_uniform(l.inputs), out = Init::kaiming_uniform(l.hidden);
  return {{"gate", {l.hidden, l.inputs}, in}, {"up", {l.hidden, l.inputs}, in}, {"down", {l.inputs, l.hidden}, out},
          {"gate_bias", {l.hidden}, in},      {"up_bias", {l.hidden}, in},      {"down_bias", {l.inputs}, out}};
}

Specs rms_norm_parameters(const Layer& l) { return {{"gamma", {l.inputs}, Init::ones()}}; }

Specs layer_norm_parameters(const Layer& l) {
  return {{"gamma", {l.inputs}, Init::ones()}, {"beta", {l.inputs}, Init::zeros()}};
}

Specs convolution_parameters(const Layer& l) {
  Shape shape{l.filters, l.channels};
  Extent fan_in = l.channels;
  for (int i = 0; i < axes_of_space(l.type); ++i) {
    shape.push_back(l.kernel);
    fan_in = try_multiply(fan_in, l.kernel).value_or(kExtentMax);
  }
  return {{"weight", shape, Init::kaiming_uniform(fan_in)}};
}

Specs rnn_parameters(const Layer& l) {
  const Init init = Init::kaiming_uniform(l.outputs);
  return {
      {"input", {l.outputs, l.inputs}, init}, {"hidden", {l.outputs, l.outputs}, init}, {"bias", {l.outputs}, init}};
}

Specs lstm_parameters(const Layer& l) {
  static constexpr std::string_view kNames[4][3] = {{"input_gate", "input_gate_hidden", "input_gate_bias"},
                                                    {"forget_gate", "forget_gate_hidden", "forget_gate_bias"},
                                                    {"cell", "cell_hidden", "cell_bias"},
                                                    {"output_gate", "output_gate_hidden", "output_gate_bias"}};
  const Init init = Init::kaiming_uniform(l.outputs);
  Specs specs;
  for (const auto& gate : kNames) {
    specs.push_back({gate[0], {l.outputs, l.inputs}, init});
    specs.push_back({gate[1], {l.outputs, l.outputs}, init});
    specs.push_back({gate[2], {l.outputs}, init});
  }
  return specs;
}

Specs embedding_parameters(const Layer& l) { return {{"table", {l.vocabulary, l.outputs}, Init::normal(1)}}; }

Specs kmeans_parameters(const Layer& l) { return {{"centres", {l.clusters, l.inputs}, Init::normal(1)}}; }

Extent inputs_of(const Layer& l) { return l.inputs; }
Extent outputs_of(const Layer& l) { return l.outputs; }
Extent kmeans_outputs(const Layer& l) { return l.features ? l.inputs : l.clusters; }

constexpr LayerRow kLayerRows[] = {
    {LayerType::dense, "dense", true, dense_parameters, dense, inputs_of, outputs_of},
    {LayerType::attention, "attention", false, attention_parameters, self_attention, inputs_of, inputs_of,
     self_attention_steps},
    {LayerType::swiglu, "swiglu", false, swiglu_parameters, gated_unit, inputs_of, inputs_of},
    {LayerType::rms_norm, "rms_norm", false, rms_norm_parameters, root_mean_square_norm, inputs_of, inputs_of},
    {LayerType::cnn1, "cnn1", true, convolution_parameters, convolution, nullptr, nullptr},
    {LayerType::cnn2, "cnn2", true, convolution_parameters, convolution, nullptr, nullptr},
    {LayerType::cnn3, "cnn3", true, convolution_parameters, convolution, nullptr, nullptr},
    {LayerType::rnn, "rnn", false, rnn_parameters, recurrent, inputs_of, outputs_of, recurrent_steps},
    {LayerType::lstm, "lstm", false, lstm_parameters, long_short_term_memory, inputs_of, outputs_of,
     long_short_term_memory_steps},
    {LayerType::layer_norm, "layer_norm", false, layer_norm_parameters, mean_variance_norm, inputs_of, inputs_of},
    {LayerType::conv_transposed1, "conv_transposed1", true, convolution_parameters, transposed_convolution, nullptr,
     nullptr},
    {LayerType::conv_transposed2, "conv_transposed2", true, convolution_parameters, transposed_convolution, nullptr,
     nullptr},
    {LayerType::conv_transposed3, "conv_transposed3", true, convolution_parameters, transposed_convolution, nullptr,
     nullptr},
    {LayerType::embedding, "embedding", true, embedding_parameters, embedded, nullptr, outputs_of},
    {LayerType::kmeans, "kmeans", true, kmeans_parameters, assignment, inputs_of, kmeans_outputs},
    {LayerType::softmax, "softmax", false, nullptr, any_softmax, nullptr, nullptr},
    {LayerType::parallel, "parallel", false, nullptr, nullptr, nullptr, nullptr},
    {LayerType::sequential, "sequential", false, nullptr, nullptr, nullptr, nullptr},
    {LayerType::residual, "residual", false, nullptr, nullptr, nullptr, nullptr},
};
static_assert(std::size(kLayerRows) == kLayerTypeCount);

template <class... Types>
constexpr std::uint32_t types(Types... each) {
  return ((1u << static_cast<int>(each)) | ...);
}

constexpr std::uint32_t kConvolutions =
    types(LayerType::cnn1, LayerType::cnn2, LayerType::cnn3, LayerType::conv_transposed1, LayerType::conv_transposed2,
          LayerType::conv_transposed3);
constexpr auto kMost = static_cast<double>(kExtentMax);
constexpr double kNumberMost = 1e30;

constexpr LayerField kLayerFields[] = {
    {"inputs", &Layer::inputs,
     types(LayerType::dense, LayerType::attention, LayerType::swiglu, LayerType::rms_norm, LayerType::rnn,
           LayerType::lstm, LayerType::layer_norm, LayerType::kmeans),
     1, kMost},
    {"outputs", &Layer::outputs, types(LayerType::dense, LayerType::rnn, LayerType::lstm, LayerType::embedding), 1,
     kMost},
    {"hidden", &Layer::hidden, types(LayerType::swiglu), 1, kMost},
    {"heads", &Layer::heads, types(LayerType::attention), 1, kMost},
    {"key_heads", &Layer::key_heads, types(LayerType::attention), 0, kMost},
    {"rope_base", &Layer::rope_base, types(LayerType::attention), 0, kNumberMost},
    {"window", &Layer::window, types(LayerType::attention), 0, kMost},
    {"channels", &Layer::channels, kConvolutions, 1, kMost},
    {"filters", &Layer::filters, kConvolutions, 1, kMost},
    {"kernel", &Layer::kernel, kConvolutions, 1, 1 << 20},
    {"stride", &Layer::stride, kConvolutions, 1, 1 << 20},
    {"padding", &Layer::padding, kConvolutions, 0, 1 << 20},
    {"vocabulary", &Layer::vocabulary, types(LayerType::embedding), 1, 0x1p31 - 1},
    {"clusters", &Layer::clusters, types(LayerType::kmeans), 1, kMost},
    {"features", &Layer::features, types(LayerType::kmeans), 0, 1},
    {"temperature", &Layer::temperature, types(LayerType::kmeans, LayerType::softmax), 1e-15, kNumberMost},
    {"epsilon", &Layer::epsilon, types(LayerType::rms_norm, LayerType::layer_norm), 0, kNumberMost},
    {"rows", &Layer::rows, types(LayerType::softmax), 0, kMost},
    {"columns", &Layer::columns, types(LayerType::softmax), 0, kMost},
    {"alpha", &Layer::alpha, types(LayerType::softmax), 0, kNumberMost},
    {"axis", &Layer::axis, types(LayerType::parallel), -64, 63},
};

}  // namespace

const LayerRow& row_of(LayerType type) { return kLayerRows[static_cast<int>(type)]; }

std::vector<ParameterSpec> parameters_of(const Layer& layer) {
  const auto parameters = row_of(layer.type).parameters;
  return parameters && !is_fresh(layer) ? parameters(layer) : std::vector<ParameterSpec>();
}

std::span<const LayerField> layer_fields() { return kLayerFields; }

std::string_view name_of(LayerType type) { return row_of(type).name; }

}  // namespace weft::grid
