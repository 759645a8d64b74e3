#include "encoder/tuned_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/file.hpp"
#include "base/python_json.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::encoder {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 30;

/// What transformers calls a family's classes, and the model within those that have a head.
struct ClassNames {
  const char *family, *name, *prefix;
};
constexpr ClassNames kClassNames[] = {{"bert", "Bert", "bert."},
                                      {"roberta", "Roberta", "roberta."},
                                      {"xlm-roberta", "XLMRoberta", "roberta."},
                                      {"camembert", "Camembert", "roberta."},
                                      {"electra", "Electra", "electra."},
                                      {"albert", "Albert", "albert."},
                                      {"distilbert", "DistilBert", "distilbert."},
                                      {"mpnet", "MPNet", "mpnet."},
                                      {"deberta-v2", "DebertaV2", "deberta."},
                                      {"nomic_bert", "NomicBert", "nomic_bert."},
                                      {"gte", "Gte", "gte."},
                                      {"new", "New", "new."},
                                      {"modernbert", "ModernBert", "model."},
                                      {"eurobert", "EuroBert", "model."}};

const ClassNames* class_names_of(const EncoderConfig& config) {
  const auto* const row = std::find_if(std::begin(kClassNames), std::end(kClassNames),
                                       [&](const ClassNames& each) { return config.family == each.family; });
  return row == std::end(kClassNames) ? nullptr : row;
}

bool is_weight_file(const fs::path& file) {
  static const std::set<std::string> kEndings = {".safetensors", ".bin",     ".pt", ".pth",  ".ckpt",
                                                 ".h5",          ".msgpack", ".ot", ".gguf", ".onnx"};
  return kEndings.contains(file.extension().string()) || file.filename().string().ends_with(".index.json");
}

/// The files of a folder, without those of folders in it.
void copy_files(const fs::path& from, const fs::path& to, bool with_modules) {
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const bool is_of_modules =
        name == "modules.json" || name == "sentence_bert_config.json" || name == "config_sentence_transformers.json";
    if (!entry.is_regular_file() || is_weight_file(entry.path()) || (is_of_modules && !with_modules)) continue;
    write_file_atomically(to / name, read_text_file(entry.path(), kFileBytesMax));
  }
}

const fs::path& checked(const fs::path& path) {
  if (fs::is_directory(path)) return path;
  throw UsageError(fmt::format(
      "{}: a text encoder trains from a folder with config.json, tokenizer.json and safetensors", path.string()));
}

}  // namespace

TunedModel::TunedModel(const fs::path& path, Device device, Extent length, TunedHead head, std::uint64_t seed)
    : path_(checked(path)),
      device_(device),
      head_(std::move(head)),
      modules_(read_sentence_modules(path)),
      transformer_(modules_.transformer == "." ? path : path / modules_.transformer),
      files_(io::TensorSource::open(transformer_)),
      json_(read_python_json_file(transformer_ / "config.json", kConfigLimits)),
      config_(read_config(json_, (transformer_ / "config.json").string())),
      names_(names_of(config_, files_)),
      tokenizer_(tokenizer_of(path, transformer_)),
      loader_(files_, device) {
  const Extent most = modules_.length > 0 ? std::min(modules_.length, config_.length) : config_.length;
  if (length < 0) throw UsageError(fmt::format("encoder: a length of {} tokens", length));
  length_ = length > 0 ? std::min(length, most) : most;
  if (head_.task != Task::embed) {
    if (!class_names_of(config_))
      throw UsageError(fmt::format("{}: Weft trains no head of classes for a {}", config_.source, config_.family));
    has_new_head_ = task_of(json_, config_, files_) != head_.task || config_.class_names.size() != head_.classes.size();
    if (const auto range = json_.find("initializer_range"); range != json_.end() && range->is_number())
      spread_ = range->get<double>();
  }
  manual_seed(static_cast<std::uint32_t>(seed));
  layers::ModelWeights weights(files_, device_);
  weights.take_from([this](const std::string& name, const Shape& shape) { return value_of(name, shape); });
  const Network network(config_, names_, weights);
  const auto classes = static_cast<Extent>(head_.classes.size());
  if (head_.task == Task::classify) (void)ClassHead(config_, names_, classes, weights);
  if (head_.task == Task::label_tokens) (void)TokenHead(config_, classes, weights);
  loader_.require_all();
  if (head_.task != Task::embed) return;
  if (modules_.splade)
    throw UsageError(fmt::format("{}: Weft does not train sparse embeddings (SpladePooling)", path.string()));
  std::uint64_t bytes = 0;
  read_products(path, config_.hidden, device_, modules_, bytes);
  const auto train = [&](const std::string& name, const Tensor& value) {
    const Tensor plain = cast(value, DType::f32);
    order_.push_back(name);
    variables_.emplace(name, Variable((plain + zeros(plain.shape(), DType::f32, device_)).eval(), name, true));
  };
  for (const SentenceModules::Dense& dense : modules_.products) {
    train(dense.folder + "/linear.weight", dense.product.weight);
    if (dense.product.bias.defined()) train(dense.folder + "/linear.bias", dense.product.bias);
  }
}

Tensor TunedModel::first_value(const std::string& name, const Shape& shape) const {
  const bool is_new =
      has_new_head_ && (is_of_head(config_, name) || (!loader_.has(name) && name.find("pooler") != std::string::npos));
  if (!is_new) {
    const Tensor read = loader_.dense(name, shape);
    return read.defined() ? read : zeros(shape, DType::f32, device_);  // `require_all` tells of it
  }
  if (name.ends_with(".bias")) return zeros(shape, DType::f32, device_);
  if (shape.rank() < 2) return full(shape, 1.0, DType::f32, device_);
  return randn(shape, 0, spread_).to(device_);
}

Tensor TunedModel::value_of(const std::string& name, const Shape& shape) {
  const auto found = variables_.find(name);
  if (found != variables_.end()) return found->second.value();
  order_.push_back(name);
  // Added to zero, so that the value is memory of its own.
  const Tensor value = (first_value(name, shape) + zeros(shape, DType::f32, device_)).eval();
  return variables_.emplace(name, Variable(value, name, true)).first->second.value();
}

std::vector<Variable> TunedModel::variables() const {
  std::vector<Variable> all;
  for (const std::string& name : order_) all.push_back(variables_.at(name));
  return all;
}

std::vector<nn::NamedVariable> TunedModel::named() const {
  std::vector<nn::NamedVariable> all;
  for (const std::string& name : order_) all.push_back({name, variables_.at(name)});
  return all;
}

std::int64_t TunedModel::count() const {
  std::int64_t numbers = 0;
  for (const auto& [name, variable] : variables_) numbers += variable.shape().numel();
  return numbers;
}

TunedModel::Passes TunedModel::passes() const {
  layers::ModelWeights weights(files_, device_);
  weights.take_from([this](const std::string& name, const Shape&) { return variables_.at(name).value(); });
  Passes made{Network(config_, names_, weights), modules_, {}, {}};
  const auto classes = static_cast<Extent>(head_.classes.size());
  if (head_.task == Task::classify) made.class_head = ClassHead(config_, names_, classes, weights);
  if (head_.task == Task::label_tokens) made.token_head = TokenHead(config_, classes, weights);
  for (SentenceModules::Dense& dense : made.modules.products) {
    dense.product.weight = variables_.at(dense.folder + "/linear.weight").value();
    if (dense.product.bias.defined()) dense.product.bias = variables_.at(dense.folder + "/linear.bias").value();
  }
  return made;
}

Tensor TunedModel::embedded(const Padded& texts, PassMode mode) const {
  const Passes made = passes();
  return made.modules.embedded(made.network.states(texts, mode), texts);
}

Tensor TunedModel::class_scores(const Padded& texts, PassMode mode) const {
  const Passes made = passes();
  return made.class_head(made.network.states(texts, mode), texts, mode.drops_out ? config_.dropouts : Dropouts());
}

Tensor TunedModel::token_scores(const Padded& texts, PassMode mode) const {
  const Passes made = passes();
  return made.token_head(made.network.states(texts, mode), mode.drops_out ? config_.dropouts : Dropouts());
}

Json TunedModel::saved_config() const {
  Json config = json_;
  for (const char* key : {"dtype", "torch_dtype"})
    if (config.contains(key)) config[key] = "float32";
  if (head_.task == Task::embed) {
    // The head that the model had is not in the files.
    if (const ClassNames* names = class_names_of(config_); names && config.contains("architectures"))
      config["architectures"] = {std::string(names->name) + "Model"};
    return config;
  }
  config["architectures"] = {std::string(class_names_of(config_)->name) +
                             (head_.task == Task::classify ? "ForSequenceClassification" : "ForTokenClassification")};
  Json names = Json::object(), ids = Json::object();
  for (std::size_t i = 0; i < head_.classes.size(); ++i) {
    names[std::to_string(i)] = head_.classes[i];
    ids[head_.classes[i]] = i;
  }
  config["id2label"] = names;
  config["label2id"] = ids;
  config.erase("num_labels");
  config.erase("problem_type");
  if (head_.problem) config["problem_type"] = head_.problem;
  return config;
}

std::string TunedModel::saved_name(const std::string& name) const {
  const bool lacks_prefix = head_.task != Task::embed && names_.prefix.empty() && !is_of_head(config_, name);
  return lacks_prefix ? class_names_of(config_)->prefix + name : name;
}

void TunedModel::save_weights(const fs::path& folder) const {
  struct File {
    std::vector<io::TensorView> tensors;
  };
  const nn::StateDict state = nn::read_state(named());
  std::map<fs::path, File> files;
  const fs::path main = head_.task == Task::embed ? fs::relative(transformer_, path_) : fs::path(".");
  for (const nn::NamedArray& array : state) {
    const std::size_t slash = array.name.find('/');
    const bool is_of_module = slash != std::string::npos;
    File& file = files[is_of_module ? fs::path(array.name.substr(0, slash)) : main];
    file.tensors.push_back({is_of_module ? array.name.substr(slash + 1) : saved_name(array.name), "F32", array.shape,
                            std::as_bytes(std::span(array.bytes))});
  }
  // Those that the model does not read but its classes in transformers have, such as a pooler.
  for (const io::SourceTensor& tensor : files_.tensors()) {
    const bool is_kept = tensor.type && !tensor.make && tensor.name.starts_with(names_.prefix) &&
                         !variables_.contains(tensor.name) && !is_of_head(config_, tensor.name) &&
                         tensor.name != "encoder.embed_tokens.weight";  // T5's table under another name
    if (is_kept) files[main].tensors.push_back({saved_name(tensor.name), tensor.type_name, tensor.shape, tensor.data});
  }
  for (const auto& [place, file] : files)
    io::write_safetensors(folder / place / "model.safetensors", file.tensors, {{"format", "pt"}});
}

void TunedModel::save(const fs::path& folder) const {
  std::error_code error;
  if (fs::equivalent(path_, folder, error))
    throw FileError(fmt::format("{}: the model would be written over itself; choose another folder", folder.string()));
  const bool embeds = head_.task == Task::embed, has_modules = fs::exists(path_ / "modules.json");
  const fs::path main = embeds ? folder / fs::relative(transformer_, path_) : folder;
  if (path_ != transformer_ || embeds) copy_files(path_, folder, embeds);
  copy_files(transformer_, main, embeds);
  if (embeds && has_modules) {
    for (const std::string& module : modules_.folders) copy_files(path_ / module, folder / module, true);
  } else if (embeds) {  // what sentence-transformers takes a folder without modules for
    const std::string kind = "sentence_transformers.models.";
    fs::create_directories(folder / "1_Pooling");
    const Json pooling = {{"word_embedding_dimension", config_.hidden}, {"pooling_mode_mean_tokens", true}};
    const Json modules = {{{"idx", 0}, {"name", "0"}, {"path", ""}, {"type", kind + "Transformer"}},
                          {{"idx", 1}, {"name", "1"}, {"path", "1_Pooling"}, {"type", kind + "Pooling"}}};
    write_file_atomically(folder / "1_Pooling" / "config.json", pooling.dump(2) + "\n");
    write_file_atomically(folder / "modules.json", modules.dump(2) + "\n");
  }
  write_file_atomically(main / "config.json", saved_config().dump(2) + "\n");
  save_weights(folder);
}

}  // namespace weft::encoder
