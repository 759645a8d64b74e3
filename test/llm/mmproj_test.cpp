// Models that see, as GGUF files: a language model, and an mmproj file beside it. The folder that they were converted from is the
// judge, which images_test.cpp compares with transformers; mmproj_judge.py asks llama.cpp about the same files.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "io/gguf.hpp"
#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "llm/image_reader.hpp"
#include "llm/mmproj.hpp"
#include "llm/read_config.hpp"
#include "text/load_tokenizer.hpp"
#include "vision/vision_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm::mmproj_test {
namespace {

using test::VisionCase;

VisionCase case_of(const std::string& name) {
  VisionCase c{name, read_json_file(std::filesystem::path(WEFT_TEST_IMAGES) / (name + ".json"))};
  if (name.starts_with("gemma3")) {
    // GGUF files of Gemma 3 have windows in five of six layers, and the usual scale of queries.
    c.json["config"]["text_config"]["query_pre_attn_scalar"] = c.json["config"]["text_config"]["head_dim"];
    c.json["config"]["text_config"]["layer_types"] =
        Json::array({"sliding_attention", "sliding_attention", "sliding_attention"});
  }
  return c;
}

std::vector<Message> question_of(const Json& chat, const std::vector<Tensor>& images) {
  std::vector<Message> messages;
  std::size_t next = 0;
  for (const Json& json : chat["messages"]) {
    Message message{json["role"], ""};
    for (const Json& part : json["content"])
      if (part["type"] == "image")
        message.parts.emplace_back(images.at(next++));
      else
        message.parts.emplace_back(part["text"].get<std::string>());
    messages.push_back(std::move(message));
  }
  return messages;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// A folder with the case's files in "folder", and the GGUF files made of them.
struct Files {
  explicit Files(const VisionCase& c, const std::string& type = "F32") {
    std::filesystem::create_directories(folder.path() / "hf");
    const test::TemporaryFolder made;
    c.put_into(made, {}, type);
    std::filesystem::copy(made.path(), folder.path() / "hf",
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    converted = convert_to_gguf(io::TensorSource::open(hf()), model());
  }
  std::filesystem::path hf() const { return folder.path() / "hf"; }
  std::filesystem::path model() const { return folder.path() / "model.gguf"; }
  std::filesystem::path mmproj() const { return folder.path() / "mmproj-model.gguf"; }

  test::TemporaryFolder folder;
  Converted converted;
};

/// The mmproj file again, with other metadata or tensors.
void rewrite(
    const std::filesystem::path& path, const std::function<void(io::GgufMetadata&)>& change,
    const std::function<bool(io::GgufTensor&)>& keep = [](io::GgufTensor&) { return true; }) {
  std::vector<std::byte> bytes;
  {
    const io::GgufFile file = io::GgufFile::open(path);
    io::GgufMetadata metadata = file.metadata();
    change(metadata);
    std::vector<io::GgufTensor> tensors;
    for (io::GgufTensor tensor : file.tensors())
      if (keep(tensor)) tensors.push_back(tensor);
    bytes = io::gguf_bytes(metadata, tensors);
  }
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}
const auto kSame = [](io::GgufMetadata&) {};

/// The rows of all tiles of an image.
std::vector<std::vector<float>> rows_of(const detail::ImageFiles& files, const text::Tokenizer& tokenizer,
                                        Extent hidden, const Tensor& image) {
  const auto reader = detail::make_image_reader({files, tokenizer, hidden, kCpu});
  const vision::PreparedImage prepared = reader->prepare(image);
  std::vector<detail::ImageReader::Tile> tiles;
  for (std::size_t i = 0; i < std::max<std::size_t>(prepared.tiles.size(), 1); ++i) tiles.push_back({&prepared, i});
  return reader->see(tiles);
}

TEST(Mmproj, GivesTheBitsOfTheFolder) {
  for (const char* name : {"llava", "smolvlm-whole", "idefics3", "gemma3-images", "gemma3-crops", "qwen2-vl",
                           "qwen2-5-vl", "qwen2-5-vl-flat", "qwen3-vl", "pixtral", "mistral3"})
    for (const char* type : {"F32", "F16"}) {
      SCOPED_TRACE(std::string(name) + " " + type);
      const VisionCase c = case_of(name);
      const Files files(c, type);
      std::vector<Tensor> images = c.images();
      const bool prepares_otherwise =
          std::string_view(name) == "smolvlm-whole" || std::string_view(name) == "gemma3-crops";
      bool says_so = false;
      for (const std::string& note : files.converted.notes)
        says_so = says_so || note.find("cannot express all of preprocessor_config.json") != std::string::npos;
      EXPECT_EQ(says_so, prepares_otherwise);
      if (prepares_otherwise) {
        const Extent side = c.json["config"]["vision_config"]["image_size"];
        std::vector<float> pixels;
        for (Extent i = 0; i < 3 * side * side; ++i) pixels.push_back(static_cast<float>(i % 97) / 50 - 1);
        for (Tensor& image : images) image = tensor<float>(pixels, {3, side, side});
      }
      // The rows, to the bit. In the folder of F16, norms, biases and positions have 16 bits too, which the file keeps in 32.
      const io::TensorSource folder_files = io::TensorSource::open(files.hf()),
                             model_file = io::TensorSource::open(files.model());
      const TensorNames names(model_file);
      const ModelConfig config = read_config(model_file, names);
      const text::Tokenizer tokenizer = text::load_tokenizer(files.hf());
      const detail::ImageFiles from_folder = detail::image_files_of_folder(files.hf(), folder_files),
                               from_file = detail::Mmproj::open(files.mmproj()).files(config, tokenizer);
      for (const Tensor& image : images)
        EXPECT_EQ(rows_of(from_file, tokenizer, config.hidden, image),
                  rows_of(from_folder, tokenizer, config.hidden, image));

      if (std::string_view(type) != "F32") continue;
      // And all that follows. Llama's queries and keys are turned in another order there, and Gemma's norms hold 1 + w.
      const Model folder = load(files.hf()), model = load(files.model());
      ASSERT_TRUE(model.reads_images());
      expect_in(model.describe(), "images are read by \"mmproj-model.gguf\", which lies beside the model");
      for (const Json& chat : c.json["chats"]) {
        const std::vector<Message> messages = question_of(chat, images);
        const Prompt of_folder = folder.chat_prompt(messages), prompt = model.chat_prompt(messages);
        EXPECT_EQ(prompt.tokens(), of_folder.tokens());
        const std::vector<float> wanted = folder.forward(of_folder), logits = model.forward(prompt);
        ASSERT_EQ(logits.size(), wanted.size());
        double worst = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i)
          worst = std::max(worst, std::abs(double{logits[i]} - wanted[i]));
        EXPECT_LE(worst, std::string_view(name).starts_with("qwen") ? 0 : 3e-5);
      }
    }
}

/// The tensors of a file or a folder, by name, as they lie there.
std::map<std::string, std::vector<std::byte>> tensors_of(const std::filesystem::path& path) {
  const io::TensorSource source = io::TensorSource::open(path);
  std::map<std::string, std::vector<std::byte>> all;
  for (const io::SourceTensor& tensor : source.tensors()) all[tensor.name] = {tensor.data.begin(), tensor.data.end()};
  return all;
}

TEST(Mmproj, GoesBackToAFolder) {
  for (const char* name :
       {"llava", "idefics3", "gemma3-images", "qwen2-vl", "qwen2-5-vl", "qwen3-vl", "pixtral", "mistral3"})
    for (const char* type : {"F32", "F16"}) {
      SCOPED_TRACE(std::string(name) + " " + type);
      const VisionCase c = case_of(name);
      const Files files(c, type);
      const auto back = files.folder.path() / "back", again = files.folder.path() / "again.gguf";
      const Converted converted = convert_to_folder(io::TensorSource::open(files.model()), back);
      ASSERT_EQ(converted.notes.size(), 1u) << converted.notes.back();
      expect_in(converted.notes[0], "images are read by \"mmproj-model.gguf\"");
      // What the first folder had, but for what the model does not read; there each name may lack a part.
      const auto first = tensors_of(files.hf());
      const bool is_gemma = std::string_view(name).starts_with("gemma");
      std::size_t count = 0;
      for (const auto& [key, bytes] : tensors_of(back)) {
        std::string other = key;
        if (constexpr std::string_view kInner = "vision_tower.vision_model."; key.starts_with(kInner))
          other = "vision_tower." + key.substr(kInner.size());
        const auto found = first.find(other);
        ASSERT_NE(found, first.end()) << key;
        ++count;
        // Gemma's norms have been 1 + w, and those of folders of F16 stay in f32.
        if (bytes.size() == found->second.size() && !(is_gemma && key.find("norm") != std::string::npos)) {
          EXPECT_EQ(bytes, found->second) << key;
        }
      }
      const std::size_t unread =
          std::string_view(name) == "llava" ? 16 + 2 : 0;  // a layer, and the norm behind the last
      EXPECT_EQ(count + unread, first.size());
      // The same files once more, to the bit.
      const Converted twice = convert_to_gguf(io::TensorSource::open(back), again);
      EXPECT_EQ(tensors_of(again), tensors_of(files.model()));
      EXPECT_EQ(tensors_of(files.folder.path() / "mmproj-again.gguf"), tensors_of(files.mmproj()));
      for (const std::string& note : twice.notes) EXPECT_EQ(note.find("left behind"), std::string::npos) << note;
      // And the folder talks about images as the first one does.
      const Model model = load(files.hf()), other = load(back);
      EXPECT_TRUE(other.reads_images());
      const std::vector<Tensor> images = c.images();
      for (const Json& chat : c.json["chats"]) {
        const std::vector<Message> messages = question_of(chat, images);
        const Prompt wanted = model.chat_prompt(messages), prompt = other.chat_prompt(messages);
        EXPECT_EQ(prompt.tokens(), wanted.tokens());
        const std::vector<float> a = model.forward(wanted), b = other.forward(prompt);
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], is_gemma ? 3e-5 : 0) << i;
      }
    }
}

TEST(Mmproj, AFolderOfTheLanguageModelAlone) {
  const Files files(case_of("qwen2-5-vl"));
  const auto alone = files.folder.path() / "alone", named = files.folder.path() / "named";
  (void)convert_to_folder(io::TensorSource::open(files.model()), alone, {.mmproj = "none"});
  EXPECT_EQ(read_json_file(alone / "config.json")["model_type"], "qwen2");
  EXPECT_FALSE(std::filesystem::exists(alone / "preprocessor_config.json"));
  const auto elsewhere = files.folder.path() / "elsewhere.gguf";
  std::filesystem::rename(files.mmproj(), elsewhere);
  (void)convert_to_folder(io::TensorSource::open(files.model()), named, {.mmproj = elsewhere});
  EXPECT_EQ(read_json_file(named / "config.json")["model_type"], "qwen2_5_vl");
  EXPECT_EQ(refusal([&] {
              (void)convert_to_folder(io::TensorSource::open(files.model()), named, {.mmproj = files.mmproj()});
            }).find("no error"),
            std::string::npos);
}

TEST(Mmproj, AFileIsFoundOrNamedOrLeftOut) {
  const VisionCase c = case_of("qwen2-5-vl");
  const Files files(c);
  EXPECT_FALSE(load(files.model(), {.mmproj = "none"}).reads_images());
  std::filesystem::create_directories(files.folder.path() / "elsewhere");
  const auto moved = files.folder.path() / "elsewhere" / "tower.gguf";
  std::filesystem::rename(files.mmproj(), moved);
  EXPECT_FALSE(load(files.model()).reads_images());
  const Model named = load(files.model(), {.mmproj = moved});
  EXPECT_TRUE(named.reads_images());
  EXPECT_EQ(named.describe().find("lies beside"), std::string::npos);
  // One of another model beside it is not taken, and the note says why.
  const Files other(case_of("gemma3-images"));
  std::filesystem::copy(other.mmproj(), files.mmproj());
  const Model blind = load(files.model());
  EXPECT_FALSE(blind.reads_images());
  expect_in(blind.describe(),
            "\"mmproj-model.gguf\" beside the model is not used: its projector gemma3 is for models of the "
            "architecture gemma3");
  expect_in(refusal([&] { (void)load(files.model(), {.mmproj = files.mmproj()}); }), "is of another model than");
  // Of several that fit, that of 16 bits; but one with the model's name comes before.
  std::filesystem::remove(files.mmproj());
  std::filesystem::copy(moved, files.folder.path() / "mmproj-a-F32.gguf");
  std::filesystem::copy(moved, files.folder.path() / "mmproj-b-F16.gguf");
  expect_in(load(files.model()).describe(), "\"mmproj-b-F16.gguf\"");
  std::filesystem::copy(moved, files.folder.path() / "the-Model-mmproj-F32.gguf");
  expect_in(load(files.model()).describe(), "\"the-Model-mmproj-F32.gguf\"");
  // A folder has its own tower.
  expect_in(refusal([&] { (void)load(files.hf(), {.mmproj = moved}); }), "leave mmproj out");
}

TEST(Mmproj, WhatDoesNotFitIsRefused) {
  const auto refused = [&](const char* name, const std::function<void(io::GgufMetadata&)>& change,
                           const std::function<bool(io::GgufTensor&)>& keep, const std::string& part) {
    const Files files(case_of(name));
    rewrite(files.mmproj(), change, keep);
    expect_in(refusal([&] { (void)load(files.model(), {.mmproj = files.mmproj()}); }), part);
  };
  const auto all = [](io::GgufTensor&) { return true; };
  const auto without = [](const std::string& name) { return [=](io::GgufTensor& t) { return t.name != name; }; };
  const auto with = [](const std::string& key, const io::GgufValue& value) {
    return [=](io::GgufMetadata& m) { m.set(key, value); };
  };
  refused("llava", with("clip.projector_type", std::string("resampler")), all,
          "clip.projector_type is \"resampler\", which Weft does not know; it knows gemma3, idefics3, mlp, pixtral, "
          "qwen2vl_merger, qwen2.5vl_merger, qwen3vl_merger");
  refused("llava", with("clip.has_vision_encoder", false), all, "the file has no tower for images");
  refused("llava", with("general.architecture", std::string("llama")), all,
          "general.architecture is \"llama\", not \"clip\"");
  refused("llava", with("clip.vision.image_grid_pinpoints", io::GgufArray(std::vector<std::int32_t>{1, 2})), all,
          "is of LLaVA 1.6");
  refused("llava", with("clip.vision.attention.head_count", std::uint32_t{5}), all,
          "is 5, which does not divide embedding_length 32");
  refused("llava", with("clip.vision.block_count", std::uint32_t{0}), all,
          "clip.vision.block_count is 0, not from 1 to 1024");
  refused("llava", with("clip.vision.block_count", std::uint32_t{900}), all, "is 900, and the file has");
  refused("llava", kSame, without("mm.2.bias"), "missing: mm.2.bias [32]");
  refused("llava", kSame, without("v.blk.1.attn_k.weight"), "missing: v.blk.1.attn_k.weight [32, 32]");
  refused("llava", kSame, without("mm.2.weight"), "mm.2.weight is missing, or is not a matrix");
  refused("qwen2-vl", kSame, without("v.patch_embd.weight"),
          "missing: visual.patch_embed.proj.weight [32, 3, 2, 7, 7]");
  refused("qwen2-vl", kSame, without("v.blk.0.attn_v.bias"), "missing: v.blk.0.attn_qkv.bias [96]");
  refused("qwen3-vl", kSame, without("v.position_embd.weight"), "v.position_embd.weight is missing");
  refused("qwen3-vl", kSame, without("v.deepstack.2.fc1.weight"),
          "it gives rows to 1 layers, and the language model takes them in 2");
  refused("pixtral", kSame, without("v.pre_ln.weight"), "missing: v.pre_ln.weight [32]");
  refused("gemma3-images", kSame, without("mm.soft_emb_norm.weight"), "missing: mm.soft_emb_norm.weight [32]");
  refused(
      "idefics3", [](io::GgufMetadata& m) { m.erase("clip.vision.image_mean"); }, all, "clip.vision.image_mean");

  // Another width, and a vocabulary without the tokens of images.
  const Files files(case_of("idefics3")), pixtral(case_of("pixtral"));
  rewrite(files.mmproj(), kSame, [](io::GgufTensor& t) {
    if (t.name == "mm.model.fc.weight") t.shape = Shape{16, 256};
    return true;
  });
  expect_in(refusal([&] { (void)load(files.model(), {.mmproj = files.mmproj()}); }),
            "it makes rows of 16, and the language model has a width of 32");
  expect_in(refusal([&] { (void)load(files.model(), {.mmproj = pixtral.mmproj()}); }),
            "the language model's vocabulary has no [IMG_BREAK]");
  // The file alone is no language model.
  expect_in(refusal([&] { (void)load(pixtral.mmproj()); }),
            "is the part of a model that sees images, without a language model");
  expect_in(refusal([&] { (void)load(files.model(), {.mmproj = files.folder.path() / "nothing.gguf"}); }),
            "nothing.gguf");
}

TEST(Mmproj, EveryKeyAndTensorMayBeBroken) {
  // Whatever a key or a tensor is, the file is read or refused.
  for (const char* name : {"llava", "idefics3", "gemma3-images", "qwen2-5-vl", "qwen3-vl", "mistral3"}) {
    const VisionCase c = case_of(name);
    const Files files(c);
    const io::TensorSource model_file = io::TensorSource::open(files.model());
    const TensorNames names(model_file);
    const ModelConfig config = read_config(model_file, names);
    const text::Tokenizer tokenizer = text::load_tokenizer(files.hf());
    const io::TensorSource whole = io::TensorSource::open(files.mmproj());
    const io::GgufMetadata& keys = whole.gguf()->metadata();
    const Tensor image = c.images()[0];
    int refused = 0, read = 0;
    const auto tried = [&](const io::GgufMetadata& metadata, const std::vector<io::SourceTensor>& tensors) {
      try {
        const detail::Mmproj file(
            io::TensorSource::of(files.mmproj(), io::SourceKind::gguf, tensors, whole.files(), {}), metadata);
        if (file.why_not(config, model_file.gguf()->metadata()).empty()) {
          ModelConfig joined = config;
          file.join(joined, model_file.gguf()->metadata());
          const detail::ImageFiles made = file.files(config, tokenizer);
          const auto reader = detail::make_image_reader({made, tokenizer, config.hidden, kCpu});
          (void)reader->text_of(reader->prepare(image));
        }
        ++read;
      } catch (const InternalError&) {
        throw;
      } catch (const Error&) {
        ++refused;
      }
    };
    for (const io::GgufMetadata::Entry& entry : keys.entries())
      for (const io::GgufValue& value :
           {io::GgufValue(std::uint32_t{0}), io::GgufValue(std::uint32_t{3}), io::GgufValue(std::int32_t{-1}),
            io::GgufValue(std::uint32_t{0xFFFFFFFF}), io::GgufValue(std::uint64_t{1} << 63), io::GgufValue(1e30F),
            io::GgufValue(std::string("x")), io::GgufValue(io::GgufArray(std::vector<float>{1, 0, 2})),
            io::GgufValue(io::GgufArray(std::vector<std::int32_t>{})), io::GgufValue(true)}) {
        io::GgufMetadata metadata = keys;
        metadata.set(entry.key, value);
        tried(metadata, whole.tensors());
      }
    for (std::size_t i = 0; i < whole.tensors().size(); ++i) {
      std::vector<io::SourceTensor> tensors = whole.tensors();
      const Extent all = tensors[i].shape.numel();
      tensors[i].shape = Shape{1, all};
      tried(keys, tensors);
      tensors[i].shape = Shape{all / 2};
      tensors[i].data = tensors[i].data.first(tensors[i].data.size() / 2);
      tried(keys, tensors);
      tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
      tried(keys, tensors);
    }
    EXPECT_GT(refused, read) << name << ": " << refused << " refused, " << read << " read";
  }
}

TEST(Mmproj, FilesOfOlderConvertersAreRead) {
  // The matrices of MLPs the other way round, no keys that came later, and queries, keys and values in one matrix.
  for (const char* name : {"llava", "qwen2-vl", "idefics3"}) {
    SCOPED_TRACE(name);
    const VisionCase c = case_of(name);
    const Files files(c);
    const Model before = load(files.model());
    rewrite(
        files.mmproj(),
        [](io::GgufMetadata& m) {
          m.erase("general.type");
          m.erase("clip.vision.feature_layer");
          m.erase("clip.vision.spatial_merge_size");
          m.set("clip.vision.feed_forward_length", std::uint32_t{0});
          if (m.get<std::string>("clip.projector_type") == "mlp") {
            m.erase("clip.projector_type");
            m.set("clip.has_llava_projector", true);
          }
        },
        [](io::GgufTensor& t) {
          const std::size_t up = t.name.find("ffn_up"), down = t.name.find("ffn_down");
          if (up != std::string::npos) t.name.replace(up, 6, "ffn_down");
          if (down != std::string::npos) t.name.replace(down, 8, "ffn_up");
          return true;
        });
    const Model model = load(files.model(), {.mmproj = files.mmproj()});
    const std::vector<Message> messages = question_of(c.json["chats"][0], c.images());
    EXPECT_EQ(model.forward(model.chat_prompt(messages)), before.forward(before.chat_prompt(messages)));
  }
}

TEST(Mmproj, AVocabularyWithoutAMarkerGetsOne) {
  // The language models of the first LLaVA files know no token for images.
  VisionCase c = case_of("llava");
  c.json["tokenizer"]["pre_tokenizer"]["use_regex"] = true;  // words that the other program has a name for
  const Files files(c);
  const Model before = load(files.model());
  const Tensor image = c.images()[0];
  const Prompt known = before.prompt("a<image>b", {&image, 1});
  const std::vector<float> wanted = before.forward(known);
  rewrite(files.model(), [](io::GgufMetadata& m) {
    std::vector<std::string> tokens = m.array<std::string>("tokenizer.ggml.tokens");
    for (std::string& token : tokens)
      if (token == "<image>") token = "<other>";
    m.set("tokenizer.ggml.tokens", io::GgufArray(tokens));
    m.erase("tokenizer.huggingface.json");
  });
  const Model model = load(files.model());
  ASSERT_TRUE(model.reads_images());
  const Prompt prompt = model.prompt("a<image>b", {&image, 1});
  EXPECT_EQ(prompt.tokens(), known.tokens());
  EXPECT_EQ(model.forward(prompt), wanted);
  // Nothing says that the file belongs to this model if there are others.
  std::filesystem::copy(files.model(), files.folder.path() / "other.gguf");
  const Model blind = load(files.model());
  EXPECT_FALSE(blind.reads_images());
  expect_in(blind.describe(), "it may belong to another model of the folder");
  EXPECT_TRUE(load(files.model(), {.mmproj = files.mmproj()}).reads_images());
  // Folders have no way to say so.
  const Converted back = convert_to_folder(io::TensorSource::open(files.model()), files.folder.path() / "back",
                                           {.with_tokenizer = false, .mmproj = files.mmproj()});
  ASSERT_EQ(back.notes.size(), 1u);
  expect_in(back.notes[0], "left behind: its vocabulary has no token \"<image>\"");
  EXPECT_EQ(read_json_file(files.folder.path() / "back" / "config.json")["model_type"], "llama");
  // The new token is none of the model's.
  EXPECT_EQ(model.vocabulary(), before.vocabulary());
  expect_in(refusal([&] { (void)model.generate("x<image>").result(); }), "outside of the vocabulary");
}

TEST(Mmproj, GemmasVocabularyMayLackTheTokenOfRows) {
  // As those of some published files, which end before it. The tokens around images are there.
  VisionCase c = case_of("gemma3-images");
  c.json["tokenizer"]["pre_tokenizer"]["use_regex"] = true;
  const Files files(c);
  const Model before = load(files.model());
  const std::vector<Message> messages = question_of(c.json["chats"][0], c.images());
  const std::vector<float> wanted = before.forward(before.chat_prompt(messages));
  rewrite(files.model(), [](io::GgufMetadata& m) {
    std::vector<std::string> tokens = m.array<std::string>("tokenizer.ggml.tokens");
    for (std::string& token : tokens)
      if (token == "<image_soft_token>") token = "<other>";
    m.set("tokenizer.ggml.tokens", io::GgufArray(tokens));
    m.erase("tokenizer.huggingface.json");
  });
  std::filesystem::copy(files.model(), files.folder.path() / "other.gguf");
  const Model model = load(files.model());
  ASSERT_TRUE(model.reads_images());
  EXPECT_EQ(model.forward(model.chat_prompt(messages)), wanted);
}

TEST(Mmproj, WhatAFileCannotExpressIsLeftBehind) {
  const auto note_of = [](const char* name, const std::function<void(Json&)>& change) {
    VisionCase c = case_of(name);
    change(c.json);
    const Files files(c);
    EXPECT_FALSE(std::filesystem::exists(files.mmproj()));
    EXPECT_TRUE(std::filesystem::exists(files.model()));
    std::string all;
    for (const std::string& note : files.converted.notes) all += note + "\n";
    return all;
  };
  const auto same = [](Json&) {};
  expect_in(note_of("llava-next", same), "cannot express models of the type llava_next, as Weft writes it");
  expect_in(note_of("internvl", same), "cannot express models of the type internvl, as Weft writes it");
  expect_in(note_of("llava-layers", same), "an mmproj file cannot express vision_feature_layer in an order");
  expect_in(note_of("llava", [](Json& j) { j["config"]["vision_feature_select_strategy"] = "full"; }),
            "cannot express vision_feature_select_strategy \"full\"");
  expect_in(note_of("idefics3-spread", same), "cannot express positions that are spread over parts of another size");
  expect_in(note_of("qwen2-5-vl",
                    [](Json& j) {
                      j["config"]["vision_config"]["fullatt_block_indexes"] = {0, 2};
                    }),
            "cannot express its vision_config: windows");
  expect_in(note_of("qwen3-vl", [](Json& j) { j["config"]["vision_config"]["hidden_act"] = "silu"; }),
            "cannot express its vision_config");
}

}  // namespace
}  // namespace weft::llm::mmproj_test
