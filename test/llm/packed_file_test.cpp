// Packed weights kept on disk: what is mapped is what was packed, and whatever happens to files, a model loads.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "backend/cpu/quant/format.hpp"
#include "base/faulty_file_system.hpp"
#include "io/tensor_source.hpp"
#include "llm/families.hpp"
#include "llm/packed_file.hpp"
#include "llm/read_config.hpp"
#include "llm/tiny_model.hpp"
#include "weft/llm.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;

struct Loaded {
  Weights weights;
  bool is_mapped() const { return !weights.packed_file.empty(); }
  std::vector<std::string> matrices;  // bytes of each
};

/// A folder with a model, and one for its packed file.
class Packed : public testing::Test {
 protected:
  void SetUp() override { put("llama"); }
  void put(std::string_view name, const std::string& type = "F16") {
    for (const test::TinyModel& model : test::tiny_models())
      if (model.name == name) test::put(model, model_, type);
  }
  PackedFileRules rules() const {
    return {.folder = cache_ / "packed", .bytes_min = 0, .settled = std::chrono::seconds(0), .disk_share = 1};
  }
  /// Waits for the packed file.
  Loaded load(const PackedFileRules& rules) const { return load_from(model_.path(), rules); }
  Loaded load() const { return load(rules()); }
  static Loaded load_from(const fs::path& path, const PackedFileRules& rules) {
    const io::TensorSource source = io::TensorSource::open(path);
    const TensorNames names(source);
    const ModelConfig config = read_config(source, names);
    const Family& family = family_of(config);
    const ModelGraph graph =
        family.build({config, family, [&](std::string_view key) { return names.find(key) != nullptr; }});
    Loaded loaded{load_weights(graph, names, Device{}, {}, rules), {}};
    for (const TensorDesc& tensor : graph.tensors) {
      if (tensor.keys.empty()) continue;
      const Tensor& matrix = loaded.weights.at(tensor.name);
      if (!is_packed_matrix(matrix)) continue;
      const auto bytes = packed_bytes(matrix);
      loaded.matrices.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    loaded.weights.writer.reset();
    return loaded;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(cache_ / "packed"))
      for (const auto& entry : fs::directory_iterator(cache_ / "packed")) found.push_back(entry.path());
    return found;
  }
  fs::path file() const {
    const std::vector<fs::path> found = files();
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? fs::path() : found[0];
  }
  /// The next load does not take the file, and writes it anew.
  void expect_written_anew() const {
    EXPECT_FALSE(load().is_mapped());
    EXPECT_TRUE(load().is_mapped());
  }
  void change(std::size_t at, char to) const {
    std::fstream stream(file(), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(to);
  }

  test::TemporaryFolder model_, cache_;
};

TEST_F(Packed, WhatIsMappedIsWhatWasPacked) {
  for (const char* name : {"llama", "qwen3", "gemma3", "phi3", "mixtral", "gpt2"}) {
    SCOPED_TRACE(name);
    put(name);
    const Loaded first = load();
    EXPECT_FALSE(first.is_mapped());
    ASSERT_FALSE(first.matrices.empty());
    const Loaded second = load();
    EXPECT_TRUE(second.is_mapped());
    EXPECT_TRUE(second.matrices == first.matrices);
    EXPECT_EQ(second.weights.bytes, first.weights.bytes);
  }
  EXPECT_EQ(files().size(), 1u);  // that of the last model in the folder
}

TEST_F(Packed, EveryKindOfBlocks) {
  constexpr Extent kRows = 37, kColumns = 768;
  std::vector<PackedPart> parts;
  std::vector<Tensor> matrices;
  const io::TensorSource source = io::TensorSource::open(model_.path());
  for (const BlockType type : cpu::kQuantTypes) {
    const BlockFormat& format = block_format(type);
    std::vector<std::byte> blocks(kRows * kColumns / format.block_elements * format.block_bytes);
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i * 37 + i / 256 * 11);
    parts.push_back({"weight", type, Shape{kRows, kColumns}});
    matrices.push_back(pack_matrix(type, blocks, {kRows, kColumns}, Device{}));
  }
  auto packed_file = PackedFile::of(source.files(), parts, rules());
  packed_file->write(matrices, {});
  ASSERT_TRUE(packed_file->open());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    SCOPED_TRACE(name_of(parts[i].type));
    const Tensor mapped = packed_file->matrix(i);
    EXPECT_TRUE(std::ranges::equal(packed_bytes(mapped), packed_bytes(matrices[i])));
    EXPECT_EQ(mapped.dtype(), parts[i].type);
  }
  // Another type, extent, order or name is another file.
  for (int change = 0; change < 4; ++change) {
    std::vector<PackedPart> others = parts;
    if (change == 0) others[0].type = BlockType::f16;
    if (change == 1) others[3].shape = {kRows + 16, kColumns};
    if (change == 2) std::swap(others[4], others[5]);
    if (change == 3) others[0].tensor = "bias";
    EXPECT_FALSE(PackedFile::of(source.files(), others, rules())->open()) << change;
  }
}

TEST_F(Packed, AFileThatIsNotWhatANewOneWouldBeIsWrittenAnew) {
  load();
  const auto size = fs::file_size(file());
  std::string head(4096, '\0');
  std::ifstream(file(), std::ios::binary).read(head.data(), 4096);
  EXPECT_NE(head.find(fs::canonical(model_ / "model.safetensors").string()), std::string::npos) << head;
  // Any byte of the head.
  for (std::size_t at = 0; at < head.size(); at += at < 600 ? 7 : 501) {
    change(at, static_cast<char>(head[at] ^ 1));
    SCOPED_TRACE(at);
    expect_written_anew();
  }
  // Cut, empty, longer; nothing beyond a size is looked at.
  for (const std::uintmax_t wrong :
       {size - 1, std::uintmax_t{4096}, std::uintmax_t{100}, std::uintmax_t{0}, size + 1}) {
    fs::resize_file(file(), wrong);
    expect_written_anew();
  }
  // A folder in its place is nobody's.
  const fs::path path = file();
  fs::remove(path);
  fs::create_directory(path);
  put("llama");
  std::ofstream(path / "mine") << "x";
  EXPECT_FALSE(load().is_mapped());
  EXPECT_FALSE(load().is_mapped());
  EXPECT_TRUE(fs::exists(path / "mine"));
}

TEST_F(Packed, AModelThatWasWrittenToIsPackedAnew) {
  const std::vector<std::string> before = load().matrices;
  ASSERT_TRUE(load().is_mapped());
  const fs::path path = model_ / "model.safetensors";
  const auto time = fs::last_write_time(path);
  const io::TensorSource source = io::TensorSource::open(model_.path());
  const auto* const weight = source.at("model.layers.0.self_attn.q_proj.weight").data.data();
  {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(weight - source.files()[0].bytes().data());
    stream.put(0x11).put(0x12);
  }
  fs::last_write_time(path, time);  // as it was, and its size too
  const Loaded changed = load();
  EXPECT_FALSE(changed.is_mapped());
  EXPECT_TRUE(changed.matrices != before);
  EXPECT_TRUE(load().matrices == changed.matrices);
  // Another model under the same name.
  put("qwen2");
  expect_written_anew();
  // The same model at another place has its own file.
  test::TemporaryFolder other;
  for (const auto& entry : fs::directory_iterator(model_.path()))
    fs::copy_file(entry.path(), other.path() / entry.path().filename());
  EXPECT_FALSE(load_from(other.path(), rules()).is_mapped());
  EXPECT_TRUE(load_from(other.path(), rules()).is_mapped());
  EXPECT_TRUE(load().is_mapped());
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(Packed, NothingIsKeptOfAModelThatMayStillChange) {
  PackedFileRules patient = rules();
  patient.settled = std::chrono::hours(1);
  EXPECT_FALSE(load(patient).is_mapped());
  EXPECT_TRUE(files().empty());
  // Or that does so between its packing and the end of the file.
  const io::TensorSource source = io::TensorSource::open(model_.path());
  const io::SourceTensor& tensor = source.at("model.layers.0.self_attn.q_proj.weight");
  const PackedPart part{tensor.name, *tensor.type, tensor.shape};
  auto packed_file = PackedFile::of(source.files(), {&part, 1}, rules());
  ASSERT_TRUE(packed_file);
  const Tensor matrices[] = {pack_matrix(part.type, tensor.data, part.shape, Device{})};
  std::ofstream(model_ / "model.safetensors", std::ios::app).flush();
  fs::last_write_time(model_ / "model.safetensors", fs::file_time_type::clock::now() + std::chrono::seconds(1));
  packed_file->write(matrices, {});
  EXPECT_TRUE(files().empty());
}

TEST_F(Packed, RulesThatWantNoFile) {
  EXPECT_FALSE(load(PackedFileRules()).is_mapped());
  PackedFileRules large = rules();
  large.bytes_min = 1 << 30;
  load(large);
  PackedFileRules without_room = rules();
  without_room.disk_share = 0;
  load(without_room);
  EXPECT_TRUE(files().empty());
}

TEST_F(Packed, OldFilesMakeRoomAndThoseWithoutAModelGo) {
  load();
  const auto bytes = static_cast<double>(fs::file_size(file()));
  const fs::path first = file();
  test::TemporaryFolder second, third;
  for (const auto& entry : fs::directory_iterator(model_.path()))
    for (const test::TemporaryFolder* to : {&second, &third})
      fs::copy_file(entry.path(), to->path() / entry.path().filename());
  load_from(second.path(), rules());
  ASSERT_EQ(files().size(), 2u);
  // Room for two: the one that was not used for longer goes.
  fs::last_write_time(first, fs::file_time_type::clock::now() - std::chrono::hours(2));
  PackedFileRules two = rules();
  two.disk_share = 2.5 * bytes / static_cast<double>(fs::space(cache_.path()).capacity);
  load_from(third.path(), two);
  EXPECT_EQ(files().size(), 2u);
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(load_from(second.path(), two).is_mapped());
  EXPECT_TRUE(load_from(third.path(), two).is_mapped());
  // Use is what counts.
  for (const fs::path& path : files())
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  load_from(second.path(), two);
  load(two);
  EXPECT_TRUE(load_from(second.path(), two).is_mapped());
  // Files of other users are left alone, however much room is needed.
  PackedFileRules one = rules();
  one.disk_share = 1.2 * bytes / static_cast<double>(fs::space(cache_.path()).capacity);
  std::ofstream(cache_ / "packed/mine") << std::string(static_cast<std::size_t>(bytes), 'x');
  fs::last_write_time(cache_ / "packed/mine", fs::file_time_type::clock::now() - std::chrono::hours(9));
  load_from(third.path(), one);
  EXPECT_TRUE(fs::remove(cache_ / "packed/mine"));
  load_from(second.path(), two);
  // What a writer left that was killed long ago, but not what one may be writing.
  const fs::path old = cache_ / "packed/a.packed.tmp-0123456789abcdef",
                 recent = cache_ / "packed/b.packed.tmp-0123456789abcdef";
  for (const fs::path& path : {old, recent}) std::ofstream(path) << "x";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  fs::remove(first);
  load();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::remove(recent));
  // A model that is gone.
  ASSERT_EQ(files().size(), 3u);
  fs::remove(second.path() / "model.safetensors");
  fs::remove(first);
  load();
  EXPECT_EQ(files().size(), 2u);
  EXPECT_TRUE(load().is_mapped());
  EXPECT_TRUE(load_from(third.path(), rules()).is_mapped());
}

TEST_F(Packed, WhateverCallFailsTheModelLoads) {
  const std::vector<std::string> wanted = load().matrices;
  const io::TensorSource source = io::TensorSource::open(model_.path());
  std::vector<PackedPart> parts;
  std::vector<Tensor> matrices;
  for (const io::SourceTensor& tensor : source.tensors()) {
    if (tensor.shape.rank() != 2) continue;
    parts.push_back({tensor.name, *tensor.type, tensor.shape});
    matrices.push_back(pack_matrix(*tensor.type, tensor.data, tensor.shape, Device{}));
  }
  for (const test::Fault& fault : test::kFaults)
    for (int n = 1;; ++n) {
      SCOPED_TRACE(testing::Message() << fault.name << " at call " << n);
      fs::remove_all(cache_ / "packed");
      test::FaultyFileSystem system(n, fault);
      {
        const ScopedFileSystem use(system);
        auto packed_file = PackedFile::of(source.files(), parts, rules());
        ASSERT_TRUE(packed_file);
        packed_file->write(matrices, {});
        packed_file->open();
      }
      // A whole file, or none that is taken.
      auto packed_file = PackedFile::of(source.files(), parts, rules());
      if (packed_file->open())
        for (std::size_t i = 0; i < parts.size(); ++i) {
          const auto got = packed_bytes(packed_file->matrix(i)), packed = packed_bytes(matrices[i]);
          ASSERT_TRUE(std::ranges::equal(got, packed)) << i;
        }
      if (!system.failed()) break;
      ASSERT_LT(n, 1000);
    }
  fs::remove_all(cache_ / "packed");
  cache_.put("packed", "a file where the folder would be");
  EXPECT_TRUE(load().matrices == wanted);
}

TEST_F(Packed, AWriterMayBeStoppedAndSeveralMayWrite) {
  const io::TensorSource source = io::TensorSource::open(model_.path());
  const io::SourceTensor& tensor = source.at("model.embed_tokens.weight");
  const PackedPart part{tensor.name, *tensor.type, tensor.shape};
  const Tensor matrix = pack_matrix(part.type, tensor.data, part.shape, Device{});
  auto packed_file = PackedFile::of(source.files(), {&part, 1}, rules());
  std::stop_source stop;
  stop.request_stop();
  packed_file->write({&matrix, 1}, stop.get_token());
  EXPECT_TRUE(files().empty());
  {
    std::vector<std::unique_ptr<PackedFileWriter>> writers;
    for (int i = 0; i < 4; ++i)
      writers.push_back(std::make_unique<PackedFileWriter>(*packed_file, std::vector{matrix}, std::chrono::hours(1)));
  }
  EXPECT_TRUE(packed_file->open());
  EXPECT_TRUE(std::ranges::equal(packed_bytes(packed_file->matrix(0)), packed_bytes(matrix)));
  EXPECT_EQ(files().size(), 1u);
}

/// As a user does it: the environment names the folder, the model is of some size and two seconds old.
TEST_F(Packed, ModelsOfSomeSizeAreKeptAndGiveTheSameLogits) {
  Json config = test::base_config("llama");
  config.update({{"vocab_size", 48}, {"hidden_size", 512}, {"intermediate_size", 5120}, {"num_hidden_layers", 1}});
  test::put(test::finish("large", config), model_, "F16");
  const char* before = std::getenv("WEFT_CACHE_DIR");
  const std::string kept = before ? before : "";
  ::setenv("WEFT_CACHE_DIR", cache_.path().c_str(), 1);
  const std::vector<std::int32_t> tokens = {1, 5, 9, 2};
  const auto text = [&](const LoadOptions& options) {
    const Model model = llm::load(model_.path(), options);
    return std::pair(model.forward(tokens), model.describe());
  };
  const std::string mark = "packed weights from";
  EXPECT_EQ(text({.device = Device{}}).second.find(mark), std::string::npos);
  EXPECT_TRUE(files().empty());  // too new
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  const auto never = text({.keep_packed = false, .device = Device{}});
  EXPECT_TRUE(files().empty());
  const auto first = text({.device = Device{}});
  EXPECT_EQ(files().size(), 1u);
  const auto second = text({.device = Device{}});
  EXPECT_EQ(first.second.find(mark), std::string::npos) << first.second;
  EXPECT_NE(second.second.find(mark), std::string::npos) << second.second;
  EXPECT_EQ(first.first, never.first);
  EXPECT_EQ(second.first, never.first);
  if (before)
    ::setenv("WEFT_CACHE_DIR", kept.c_str(), 1);
  else
    ::unsetenv("WEFT_CACHE_DIR");
}

unsigned mode_of(const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()); }

TEST_F(Packed, IsForItsUserAlone) {
  fs::create_directories(cache_ / "packed");
  fs::permissions(cache_ / "packed", fs::perms::all);
  load();
  EXPECT_EQ(mode_of(cache_ / "packed"), 0700u);
  EXPECT_EQ(mode_of(file()), 0600u);
  // A file that others may have written is packed anew.
  fs::permissions(file(), fs::perms::owner_read | fs::perms::owner_write | fs::perms::others_write);
  expect_written_anew();
  EXPECT_EQ(mode_of(file()), 0600u);
}

TEST_F(Packed, ABitThatChangedIsSeen) {
  const std::vector<std::string> before = load().matrices;
  const auto size = fs::file_size(file());
  for (const std::uintmax_t at : {std::uintmax_t{4096}, size / 2, size - 17, size - 1}) {
    std::string content(size, '\0');
    std::ifstream(file(), std::ios::binary).read(content.data(), static_cast<std::streamsize>(size));
    change(at, static_cast<char>(content[at] ^ 4));
    SCOPED_TRACE(at);
    expect_written_anew();
  }
  EXPECT_TRUE(load().matrices == before);
}

// What others may put into a folder that they share: nothing of it is waited for, followed or removed.
TEST_F(Packed, EntriesThatAreNoFiles) {
  load();
  const fs::path path = file(), pipe = cache_ / "packed/a.packed", link = cache_ / "packed/b.packed";
  fs::remove(path);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  write_file_atomically(cache_ / "secret", "weft packed weights 2\nmodel /nowhere\n");
  fs::create_symlink(cache_ / "secret", link);
  expect_written_anew();
  EXPECT_TRUE(fs::exists(pipe) && fs::is_symlink(link) && fs::exists(cache_ / "secret"));
  // In place of the file itself.
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(load().is_mapped());
  EXPECT_TRUE(load().is_mapped());
  fs::rename(path, cache_ / "elsewhere");
  fs::create_symlink(cache_ / "elsewhere", path);
  expect_written_anew();
  EXPECT_FALSE(fs::is_symlink(path));
  EXPECT_TRUE(fs::exists(cache_ / "elsewhere"));
}

}  // namespace
}  // namespace weft::llm
