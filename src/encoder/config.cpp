#include "encoder/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "io/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::encoder {
namespace {

using io::ConfigKeys;

constexpr Extent kWidthMax = 1 << 16, kLayersMax = 1 << 10, kLengthMax = 1 << 20;

Extent sized(const ConfigKeys& keys, std::initializer_list<const char*> names, Extent fallback, Extent least,
             Extent most) {
  const Extent value = keys.size(names, fallback);
  if (value < least || value > most)
    keys.fail(*names.begin(), fmt::format("is {}, not from {} to {}", value, least, most));
  return value;
}

/// The op of an activation's name in transformers.
std::string activation_of(const ConfigKeys& keys, const char* key, const std::string& name) {
  static constexpr std::pair<std::string_view, const char*> kOps[] = {{"gelu", "gelu"},
                                                                      {"gelu_python", "gelu"},
                                                                      {"gelu_new", "gelu_tanh"},
                                                                      {"gelu_fast", "gelu_tanh"},
                                                                      {"gelu_pytorch_tanh", "gelu_tanh"},
                                                                      {"relu", "relu"},
                                                                      {"silu", "silu"},
                                                                      {"swish", "silu"},
                                                                      {"swiglu", "silu"},
                                                                      {"geglu", "gelu"},
                                                                      {"tanh", "tanh"},
                                                                      {"mish", "mish"}};
  for (const auto& [known, op] : kOps)
    if (known == name) return op;
  keys.fail(key, fmt::format("is {}, an activation that Weft does not know", quote(name, 60)));
}

/// What most families say in the same keys. `d`: the defaults of their classes in transformers, which files leave out.
struct Defaults {
  Extent hidden = 768, intermediate = 3072, layers = 12, heads = 12, vocabulary = 30522, length = 512, types = 2;
  double eps = 1e-12;
  const char* activation = "gelu";
  double dropout = 0.1, share_dropout = 0.1;
};
double probability(const ConfigKeys& keys, const char* key, double fallback) {
  const double value = keys.number({key}, fallback);
  if (!(value >= 0 && value < 1)) keys.fail(key, fmt::format("is {}, not a probability below 1", value));
  return value;
}

void read_dropouts(const ConfigKeys& keys, const Defaults& d, Dropouts& p) {
  p.embeddings = p.attention = p.mlp = p.classes = probability(keys, "hidden_dropout_prob", d.dropout);
  p.shares = probability(keys, "attention_probs_dropout_prob", d.share_dropout);
  p.classes = p.token_classes = probability(keys, "classifier_dropout", p.classes);
}

void read_common(const ConfigKeys& keys, const Defaults& d, EncoderConfig& c) {
  c.hidden = sized(keys, {"hidden_size"}, d.hidden, 1, kWidthMax);
  c.intermediate = sized(keys, {"intermediate_size"}, d.intermediate, 1, 1 << 18);
  c.layers = sized(keys, {"num_hidden_layers"}, d.layers, 1, kLayersMax);
  c.heads = sized(keys, {"num_attention_heads"}, d.heads, 1, 1 << 10);
  c.vocabulary = sized(keys, {"vocab_size"}, d.vocabulary, 1, ConfigKeys::kSizeMax);
  c.length = sized(keys, {"max_position_embeddings"}, d.length, 1, kLengthMax);
  c.types = sized(keys, {"type_vocab_size"}, d.types, 0, 1 << 10);
  c.norm_eps = keys.number({"layer_norm_eps"}, d.eps);
  c.activation = activation_of(keys, "hidden_act", keys.text({"hidden_act"}, d.activation));
  c.position_rows = c.length;
  read_dropouts(keys, d, c.dropouts);
}

/// Rotary positions in keys of transformers 5 (`rope_parameters`) or before (`rope_theta`), without scaling.
double theta_of(const ConfigKeys& keys, const char* layer_type, double fallback) {
  const Json* all = keys.find({"rope_parameters"});
  if (all && layer_type && all->is_object() && all->contains(layer_type)) all = &(*all)[layer_type];
  if (!all || !all->is_object()) {
    if (const Json* scaling = keys.find({"rope_scaling"}); scaling && !scaling->empty())
      keys.fail("rope_scaling", "is set, and Weft turns the positions of text encoders without scaling");
    return fallback;
  }
  const ConfigKeys parameters(*all, keys.source(), "rope_parameters");
  if (const std::string type = parameters.text({"rope_type"}, "default"); type != "default")
    parameters.fail("rope_type", fmt::format("is {}; text encoders have \"default\"", quote(type, 40)));
  return parameters.number({"rope_theta"}, fallback);
}

void read_local_layers(const ConfigKeys& keys, Extent period, Extent global_at, EncoderConfig& c) {
  if (const Json* types = keys.find({"layer_types"})) {
    if (!types->is_array() || static_cast<Extent>(types->size()) != c.layers)
      keys.fail("layer_types", fmt::format("is not a list of {}, one for each layer", c.layers));
    for (const Json& type : *types) c.is_local.push_back(type == "sliding_attention");
    return;
  }
  for (Extent i = 0; i < c.layers; ++i) c.is_local.push_back(i % period != global_at);
}

void require_absolute(const ConfigKeys& keys) {
  if (const std::string type = keys.text({"position_embedding_type"}, "absolute"); type != "absolute")
    keys.fail("position_embedding_type", fmt::format("is {}; Weft has \"absolute\"", quote(type, 60)));
}

void read_bert(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(keys, {}, c);
  require_absolute(keys);
}

// The first rows of the table stand for padding.
void offset_positions(const ConfigKeys& keys, EncoderConfig& c) {
  c.first_position = keys.size({"pad_token_id"}, 1) + 1;
  if (c.first_position >= c.position_rows) keys.fail("pad_token_id", "leaves no positions");
  c.length = c.position_rows - c.first_position;
}

void read_roberta(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(keys, {.vocabulary = 50265}, c);
  require_absolute(keys);
  offset_positions(keys, c);
  c.dropouts.has_dense = true;
}

void read_electra(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(keys, {.hidden = 256, .intermediate = 1024, .heads = 4}, c);
  require_absolute(keys);
  c.embedding = sized(keys, {"embedding_size"}, 128, 1, kWidthMax);
  c.class_activation = "gelu";
  c.dropouts.has_dense = true;
}

void read_albert(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(keys,
              {.hidden = 4096,
               .intermediate = 16384,
               .heads = 64,
               .vocabulary = 30000,
               .activation = "gelu_new",
               .dropout = 0,
               .share_dropout = 0},
              c);
  c.dropouts.mlp = 0;
  c.dropouts.token_classes = c.dropouts.embeddings;
  c.dropouts.classes = probability(keys, "classifier_dropout_prob", 0.1);
  require_absolute(keys);
  c.embedding = sized(keys, {"embedding_size"}, 128, 1, kWidthMax);
  c.groups = sized(keys, {"num_hidden_groups"}, 1, 1, c.layers);
  c.layers_in_group = sized(keys, {"inner_group_num"}, 1, 1, 1 << 8);
}

void read_distilbert(const ConfigKeys& keys, EncoderConfig& c) {
  c.hidden = sized(keys, {"dim"}, 768, 1, kWidthMax);
  c.intermediate = sized(keys, {"hidden_dim"}, 4 * 768, 1, 1 << 18);
  c.layers = sized(keys, {"n_layers"}, 6, 1, kLayersMax);
  c.heads = sized(keys, {"n_heads"}, 12, 1, 1 << 10);
  c.vocabulary = sized(keys, {"vocab_size"}, 30522, 1, ConfigKeys::kSizeMax);
  c.position_rows = c.length = sized(keys, {"max_position_embeddings"}, 512, 1, kLengthMax);
  c.activation = activation_of(keys, "activation", keys.text({"activation"}, "gelu"));
  c.class_activation = "relu";
  c.dropouts.embeddings = c.dropouts.mlp = c.dropouts.token_classes = probability(keys, "dropout", 0.1);
  c.dropouts.shares = probability(keys, "attention_dropout", 0.1);
  c.dropouts.classes = probability(keys, "seq_classif_dropout", 0.2);
}

void read_mpnet(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(keys, {.vocabulary = 30527, .types = 0}, c);
  c.types = 0;
  offset_positions(keys, c);
  c.positions = Positions::buckets;
  c.buckets = sized(keys, {"relative_attention_num_buckets"}, 32, 4, 1 << 12);
  c.distance = 128;
  c.dropouts.has_dense = true;
}

void read_t5(const ConfigKeys& keys, EncoderConfig& c) {
  c.hidden = sized(keys, {"d_model"}, 512, 1, kWidthMax);
  c.intermediate = sized(keys, {"d_ff"}, 2048, 1, 1 << 18);
  c.layers = sized(keys, {"num_layers"}, 6, 1, kLayersMax);
  c.heads = sized(keys, {"num_heads"}, 8, 1, 1 << 10);
  c.head_width = sized(keys, {"d_kv"}, 64, 1, 1 << 10);
  c.vocabulary = sized(keys, {"vocab_size"}, 32128, 1, ConfigKeys::kSizeMax);
  c.length = sized(keys, {"n_positions"}, 512, 1, kLengthMax);  // of training; longer texts have a meaning too
  c.positions = Positions::buckets;
  c.has_position_table = false;
  c.buckets = sized(keys, {"relative_attention_num_buckets"}, 32, 4, 1 << 12);
  c.distance = sized(keys, {"relative_attention_max_distance"}, 128, 2, 1 << 20);
  c.norm = layers::NormKind::rms;
  c.norm_eps = keys.number({"layer_norm_epsilon"}, 1e-6);
  c.norms_first = c.has_last_norm = true;
  c.norms_embeddings = false;
  const std::string feed = keys.text({"feed_forward_proj"}, "relu");
  c.is_gated = feed.starts_with("gated-");
  const std::string name = feed.substr(c.is_gated ? 6 : 0);
  c.activation = activation_of(keys, "feed_forward_proj", c.is_gated && name == "gelu" ? "gelu_new" : name);
  c.has_qkv_bias = c.has_output_bias = c.has_up_bias = c.has_down_bias = false;
  c.score_scale = 1;
  Dropouts& p = c.dropouts;
  p.embeddings = p.shares = p.attention = p.inside = p.mlp = p.states = probability(keys, "dropout_rate", 0.1);
}

void read_deberta(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(
      keys,
      {.hidden = 1536, .intermediate = 6144, .layers = 24, .heads = 24, .vocabulary = 128100, .types = 0, .eps = 1e-7},
      c);
  c.embedding = sized(keys, {"embedding_size"}, c.hidden, 1, kWidthMax);
  c.has_position_table = keys.flag("position_biased_input", true);
  c.class_activation = activation_of(keys, "pooler_hidden_act", keys.text({"pooler_hidden_act"}, "gelu"));
  c.dropouts.classes = probability(keys, "cls_dropout", c.dropouts.attention);
  c.dropouts.token_classes = c.dropouts.attention;
  if (keys.size({"conv_kernel_size"}, 0) > 0)
    keys.fail("conv_kernel_size", "is set: a convolution beside the layers, which Weft does not have");
  if (!keys.flag("relative_attention", false)) return;
  c.positions = Positions::disentangled;
  const auto positive = [&](const char* key) {
    const Json* value = keys.find({key});
    return value && value->is_number_integer() && *value > 0 && *value <= kLengthMax ? value->get<Extent>() : Extent{0};
  };
  c.distance = positive("max_relative_positions");
  if (c.distance == 0) c.distance = c.length;
  c.buckets = positive("position_buckets");
  c.shares_position_weights = keys.flag("share_att_key", false);
  std::string norms = keys.text({"norm_rel_ebd"}, "none");
  c.norms_distances = norms.find("layer_norm") != std::string::npos;
  const Json* types = keys.find({"pos_att_type"});
  const std::string list = !types ? "" : types->is_string() ? types->get<std::string>() : types->dump();
  c.has_position_keys = list.find("c2p") != std::string::npos;
  c.has_position_queries = list.find("p2c") != std::string::npos;
}

void read_nomic(const ConfigKeys& keys, EncoderConfig& c) {
  // Files of the model's makers have GPT-2's keys.
  const bool is_old = keys.find({"n_embd"}) != nullptr;
  if (is_old) {
    c.hidden = sized(keys, {"n_embd"}, 768, 1, kWidthMax);
    c.intermediate = sized(keys, {"n_inner"}, 4 * c.hidden, 1, 1 << 18);
    c.layers = sized(keys, {"n_layer"}, 12, 1, kLayersMax);
    c.heads = sized(keys, {"n_head"}, 12, 1, 1 << 10);
    c.vocabulary = sized(keys, {"vocab_size"}, 30528, 1, ConfigKeys::kSizeMax);
    c.length = sized(keys, {"n_positions"}, 2048, 1, kLengthMax);
    c.types = sized(keys, {"type_vocab_size"}, 2, 0, 1 << 10);
    c.norm_eps = keys.number({"layer_norm_epsilon"}, 1e-12);
    c.activation = activation_of(keys, "activation_function", keys.text({"activation_function"}, "swiglu"));
    if (keys.flag("prenorm", false)) keys.fail("prenorm", "is true, which Weft does not have");
    if (keys.number({"rotary_emb_fraction"}, 1) != 1) keys.fail("rotary_emb_fraction", "is not 1");
    if (keys.size({"num_experts"}, 0) > 0) keys.fail("num_experts", "is set: Weft reads the models without experts");
    c.has_qkv_bias = c.has_output_bias = keys.flag("qkv_proj_bias", false);
    c.has_up_bias = keys.flag("mlp_fc1_bias", false);
    c.has_down_bias = keys.flag("mlp_fc2_bias", false);
    c.theta = keys.number({"rotary_emb_base"}, 1000);
  } else {
    read_common(keys, {.vocabulary = 30528, .length = 2048, .activation = "silu", .dropout = 0, .share_dropout = 0}, c);
    c.has_qkv_bias = c.has_output_bias = c.has_up_bias = c.has_down_bias = false;
    c.theta = theta_of(keys, nullptr, 1000);
  }
  c.positions = Positions::rotary;
  c.is_gated = true;
}

void read_gte(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(keys, {.vocabulary = 250048, .length = 8192, .types = 1, .share_dropout = 0}, c);
  c.positions = Positions::rotary;
  c.theta = keys.find({"rope_parameters"}) ? theta_of(keys, nullptr, 160000)
                                           : keys.number({"rope_theta"}, theta_of(keys, nullptr, 160000));
  if (keys.flag("logn_attention_scale", false)) keys.fail("logn_attention_scale", "is true, which Weft does not have");
  c.is_gated = true;
  c.has_up_bias = false;
}

void read_modernbert(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(keys, {.intermediate = 1152, .layers = 22, .vocabulary = 50368, .length = 8192, .types = 0}, c);
  c.types = 0;
  c.activation = activation_of(keys, "hidden_activation", keys.text({"hidden_activation"}, "gelu"));
  c.norm_eps = keys.number({"norm_eps"}, 1e-5);
  c.norm = keys.flag("norm_bias", false) ? layers::NormKind::layer : layers::NormKind::layer_without_bias;
  c.positions = Positions::rotary;
  c.theta = keys.number({"global_rope_theta"}, theta_of(keys, "full_attention", 160000));
  c.local_theta = keys.number({"local_rope_theta"}, theta_of(keys, "sliding_attention", 10000));
  c.window = sized(keys, {"local_attention"}, 128, 2, kLengthMax) / 2 + 1;
  read_local_layers(keys, sized(keys, {"global_attn_every_n_layers"}, 3, 1, kLayersMax), 0, c);
  c.norms_first = c.has_last_norm = c.lacks_first_norm = true;
  c.is_gated = c.gate_is_first = true;
  c.has_qkv_bias = c.has_output_bias = keys.flag("attention_bias", false);
  c.has_up_bias = c.has_down_bias = keys.flag("mlp_bias", false);
  c.class_activation = activation_of(keys, "classifier_activation", keys.text({"classifier_activation"}, "gelu"));
  c.class_pooling = keys.text({"classifier_pooling"}, "cls") == "mean" ? Pooling::mean : Pooling::first;
  c.dropouts = {.embeddings = probability(keys, "embedding_dropout", 0),
                .inside = probability(keys, "mlp_dropout", 0),
                .classes = probability(keys, "classifier_dropout", 0)};
  c.dropouts.token_classes = c.dropouts.classes;
  c.dropouts.shares = c.dropouts.attention = probability(keys, "attention_dropout", 0);
}

void read_heads(const ConfigKeys& keys, Extent head_width, EncoderConfig& c) {
  c.key_heads = sized(keys, {"num_key_value_heads"}, c.heads, 1, c.heads);
  c.head_width = sized(keys, {"head_dim"}, head_width, 1, 1 << 10);
}

void read_eurobert(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(keys, {.vocabulary = 128256, .length = 8192, .types = 0, .activation = "silu"}, c);
  c.types = 0;
  c.dropouts = {.shares = probability(keys, "attention_dropout", 0)};
  read_heads(keys, c.hidden / c.heads, c);
  c.norm = layers::NormKind::rms;
  c.norm_eps = keys.number({"rms_norm_eps"}, 1e-5);
  c.norms_first = c.has_last_norm = c.is_gated = true;
  c.norms_embeddings = false;
  c.positions = Positions::rotary;
  c.theta = keys.number({"rope_theta"}, theta_of(keys, nullptr, 250000));
  c.has_qkv_bias = c.has_output_bias = keys.flag("attention_bias", false);
  c.has_up_bias = c.has_down_bias = keys.flag("mlp_bias", false);
  c.class_activation = "gelu";
  const std::string pooling = keys.text({"classifier_pooling"}, "late");
  if (pooling != "bos" && pooling != "mean" && pooling != "late")
    keys.fail("classifier_pooling", fmt::format("is {}; known are bos, mean and late", quote(pooling, 40)));
  c.class_pooling = pooling == "bos" ? Pooling::first : Pooling::mean;
  c.pools_class_scores = pooling == "late";
}

void read_gemma(const ConfigKeys& keys, EncoderConfig& c) {
  read_common(keys,
              {.hidden = 2304,
               .intermediate = 9216,
               .layers = 26,
               .heads = 8,
               .vocabulary = 262208,
               .length = 131072,
               .types = 0},
              c);
  c.types = 0;
  c.dropouts = {.shares = probability(keys, "attention_dropout", 0)};
  c.activation = activation_of(keys, "hidden_activation", keys.text({"hidden_activation"}, "gelu_pytorch_tanh"));
  read_heads(keys, 256, c);
  c.norm = layers::NormKind::rms;
  c.norm_eps = keys.number({"rms_norm_eps"}, 1e-6);
  c.norms_first = c.norms_parts = c.norms_heads = c.norms_add_one = c.has_last_norm = c.is_gated = true;
  c.norms_embeddings = false;
  c.positions = Positions::rotary;
  c.theta = keys.number({"rope_theta"}, theta_of(keys, "full_attention", 1e6));
  c.local_theta = keys.number({"rope_local_base_freq"}, theta_of(keys, "sliding_attention", 10000));
  c.window = sized(keys, {"sliding_window"}, 4096, 2, kLengthMax) / 2 + 1;
  const Extent period = sized(keys, {"_sliding_window_pattern", "sliding_window_pattern"}, 6, 1, kLayersMax);
  read_local_layers(keys, period, period - 1, c);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (keys.find({key})) keys.fail(key, "is set, which text encoders do not have");
  c.has_qkv_bias = c.has_output_bias = keys.flag("attention_bias", false);
  c.has_up_bias = c.has_down_bias = false;
  const double scalar = keys.number({"query_pre_attn_scalar"}, 256);
  if (!(scalar > 0)) keys.fail("query_pre_attn_scalar", fmt::format("is {}, not above 0", scalar));
  c.score_scale = 1 / std::sqrt(scalar);
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
}

struct Family {
  const char* model_type;
  void (*read)(const ConfigKeys& keys, EncoderConfig& c);
};
constexpr Family kFamilies[] = {{"bert", read_bert},
                                {"roberta", read_roberta},
                                {"xlm-roberta", read_roberta},
                                {"camembert", read_roberta},
                                {"electra", read_electra},
                                {"albert", read_albert},
                                {"distilbert", read_distilbert},
                                {"mpnet", read_mpnet},
                                {"t5", read_t5},
                                {"mt5", read_t5},
                                {"deberta-v2", read_deberta},
                                {"nomic_bert", read_nomic},
                                {"gte", read_gte},
                                {"new", read_gte},
                                {"modernbert", read_modernbert},
                                {"eurobert", read_eurobert},
                                {"gemma3_text", read_gemma}};

const Family* family_of(const Json& json) {
  const auto type = json.is_object() ? json.find("model_type") : json.end();
  if (!json.is_object() || type == json.end() || !type->is_string()) return nullptr;
  for (const Family& family : kFamilies)
    if (*type == family.model_type) return &family;
  return nullptr;
}

// Files do not name classes that have the names and the number of transformers' defaults.
void read_classes(const ConfigKeys& keys, EncoderConfig& c) {
  c.is_multi_label = keys.text({"problem_type"}, "") == "multi_label_classification";
  const Json* labels = keys.find({"id2label"});
  if (!labels) {
    const Json* heads = keys.find({"architectures"});
    if (!heads || heads->dump().find("Classification\"") == std::string::npos) return;
    const Extent count = sized(keys, {"num_labels"}, 2, 1, 1 << 20);
    for (Extent i = 0; i < count; ++i) c.class_names.push_back(fmt::format("LABEL_{}", i));
    return;
  }
  if (!labels->is_object()) keys.fail("id2label", "is not an object of names by id");
  for (std::size_t i = 0; i < labels->size(); ++i) {
    const auto name = labels->find(std::to_string(i));
    if (name == labels->end() || !name->is_string())
      keys.fail("id2label", fmt::format("has {} names, and none for class {}", labels->size(), i));
    c.class_names.push_back(name->get<std::string>());
  }
}

}  // namespace

bool describes_encoder(const Json& json) {
  const Family* family = family_of(json);
  if (!family) return false;
  // Gemma 3 writes texts; only those that see in both directions embed them.
  return family->read != read_gemma || json.value("use_bidirectional_attention", Json(false)) == true;
}

void complete(EncoderConfig& c) {
  const auto fail = [&](const std::string& fact) { throw FileError(fmt::format("{}: {}", c.source, fact)); };
  if (c.embedding == 0) c.embedding = c.hidden;
  if (c.key_heads == 0) c.key_heads = c.heads;
  if (c.head_width == 0) {
    if (c.hidden % c.heads != 0) fail(fmt::format("{} heads do not divide the width {}", c.heads, c.hidden));
    c.head_width = c.hidden / c.heads;
  }
  if (c.heads % c.key_heads != 0)
    fail(fmt::format("{} heads of keys do not divide {} of queries", c.key_heads, c.heads));
  if (c.positions == Positions::rotary && c.head_width % 2 != 0)
    fail(fmt::format("rotary positions turn pairs, and heads are {} wide", c.head_width));
  if (!(c.norm_eps > 0 && c.norm_eps < 1))
    fail(fmt::format("the epsilon of norms is {}, not between 0 and 1", c.norm_eps));
  if (!(c.theta > 0 && c.local_theta > 0)) fail("the base of rotary positions is not above 0");
  if (c.positions == Positions::buckets && c.distance <= c.buckets / 4)
    fail(fmt::format("{} buckets of distances do not fit a distance of {}", c.buckets, c.distance));
  // Distances behind the middle bucket grow by the logarithm of (distance - 1) / middle, which must not be 0 or less.
  if (c.positions == Positions::disentangled && c.buckets > 0 && (c.buckets < 2 || c.distance <= c.buckets / 2 + 1))
    fail(fmt::format("{} buckets of positions do not fit a distance of {}", c.buckets, c.distance));
}

EncoderConfig read_config(const Json& json, const std::string& source) {
  const ConfigKeys keys(json, source);
  EncoderConfig c;
  c.source = source;
  c.family = keys.text({"model_type"});
  const Family* family = family_of(json);
  if (!family) {
    std::vector<std::string_view> known;
    for (const Family& each : kFamilies) known.push_back(each.model_type);
    keys.fail("model_type", fmt::format("is {}, not a text encoder that Weft knows: {}", quote(c.family, 60),
                                        fmt::join(known, ", ")));
  }
  if (!describes_encoder(json))
    keys.fail("use_bidirectional_attention", "is not true: the model writes texts; load it with llm::load");
  family->read(keys, c);
  read_classes(keys, c);
  complete(c);
  return c;
}

}  // namespace weft::encoder
