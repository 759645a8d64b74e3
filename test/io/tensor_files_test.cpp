// The public functions between tensors and files: every type that each format has, both ways, against files put together
// here; what formats lack; hostile files.
#include "weft/io.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "tensor/element.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::tensor_files_test {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct Format {
  DType type;
  std::string npy, safetensors;  // as the formats spell the type; "" where they have none
};
const Format kFormats[] = {
    {DType::f32, "<f4", "F32"},
    {DType::f64, "<f8", "F64"},
    {DType::f16, "<f2", "F16"},
    {DType::bf16, "", "BF16"},
    {DType::boolean, "|b1", "BOOL"},
    {DType::i8, "|i1", "I8"},
    {DType::i16, "<i2", "I16"},
    {DType::i32, "<i4", "I32"},
    {DType::i64, "<i8", "I64"},
    {DType::u8, "|u1", "U8"},
    {DType::u16, "<u2", "U16"},
    {DType::u32, "<u4", "U32"},
    {DType::u64, "<u8", "U64"},
    {DType::fp8_e4m3, "", "F8_E4M3"},
    {DType::fp8_e5m2, "", "F8_E5M2"},
    {DType::fp4_e2m1, "", "F4"},
    {DType::int4, "", ""},
    {DType::uint4, "", ""},
    {DType::int2, "", ""},
    {DType::uint2, "", ""},
    {DType::ternary, "", ""},
    {DType::binary, "", ""},
};

std::vector<char> bytes_for(DType type, std::size_t count) {
  std::vector<char> bytes(bytes_of(type, count));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = type == DType::boolean ? static_cast<char>(i % 3 == 0) : static_cast<char>(i * 37 + 1);
  return bytes;
}
std::vector<char> bytes_in(const Tensor& t) {
  std::vector<char> bytes(bytes_of(t.dtype(), static_cast<std::size_t>(t.numel())));
  t.copy_to(bytes.data(), bytes.size());
  return bytes;
}
std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}
/// A .npy file as NumPy 1.24 writes it.
std::string npy_file(const std::string& descr, const std::string& shape, const std::vector<char>& data) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += "\n";
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  return text + header + std::string(data.begin(), data.end());
}
std::string safetensors_file(const std::string& header, const std::vector<char>& data) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i) & 255);
  return text + header + std::string(data.begin(), data.end());
}

TEST(TensorFiles, EveryTypeOfNpyBothWays) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.npy";
  for (const Format& format : kFormats) {
    SCOPED_TRACE(std::string(name_of(format.type)));
    const std::vector<char> bytes = bytes_for(format.type, 6);
    const Tensor t = tensor_from_bytes(bytes.data(), {2, 3}, format.type);
    if (format.npy.empty()) {
      EXPECT_NE(message_of<UsageError>([&] {
                  save_npy(path, t);
                }).find("the format has no " + std::string(name_of(format.type))),
                std::string::npos);
      continue;
    }
    write(path, npy_file(format.npy, "(2, 3)", bytes));
    const Tensor read = load_npy(path);
    EXPECT_EQ(read.dtype(), format.type);
    EXPECT_EQ(read.shape(), (Shape{2, 3}));
    EXPECT_EQ(bytes_in(read), bytes);
    save_npy(path, t);
    EXPECT_EQ(text_of(path), npy_file(format.npy, "(2, 3)", bytes));
    if (size_bytes(format.type) == 1) continue;
    std::vector<char> swapped = bytes;  // big-endian
    for (std::size_t at = 0; at < swapped.size(); at += size_bytes(format.type))
      std::reverse(swapped.begin() + static_cast<std::ptrdiff_t>(at),
                   swapped.begin() + static_cast<std::ptrdiff_t>(at + size_bytes(format.type)));
    write(path, npy_file(">" + format.npy.substr(1), "(2, 3)", swapped));
    EXPECT_EQ(bytes_in(load_npy(path)), bytes);
  }
}

TEST(TensorFiles, EveryTypeOfNpzBothWays) {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const Format& format : kFormats)
    if (!format.npy.empty())
      tensors.emplace(name_of(format.type), tensor_from_bytes(bytes_for(format.type, 35).data(), {5, 7}, format.type));
  tensors.emplace("scalar", full({}, 2.5));
  tensors.emplace("nothing", zeros({0, 4}, DType::i16));
  save_npz(folder.path() / "a.npz", tensors);
  const NamedTensors read = load_npz(folder.path() / "a.npz");
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, t] : tensors) {
    EXPECT_EQ(read.at(name).dtype(), t.dtype()) << name;
    EXPECT_EQ(read.at(name).shape(), t.shape()) << name;
    EXPECT_EQ(bytes_in(read.at(name)), bytes_in(t)) << name;
  }
  EXPECT_NE(message_of<UsageError>([&] {
              save_npz(folder.path() / "b.npz", {{"x", zeros({2}, DType::bf16)}});
            }).find("the format has no bf16"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "b.npz"));
}

TEST(TensorFiles, EveryTypeOfSafetensorsBothWays) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  for (const Format& format : kFormats) {
    SCOPED_TRACE(std::string(name_of(format.type)));
    const std::vector<char> bytes = bytes_for(format.type, 6);
    const Tensor t = tensor_from_bytes(bytes.data(), {2, 3}, format.type);
    if (format.safetensors.empty()) {
      EXPECT_NE(message_of<UsageError>([&] {
                  save_safetensors(path, {{"x", t}});
                }).find("the format has no " + std::string(name_of(format.type))),
                std::string::npos);
      continue;
    }
    const std::string header = R"({"x":{"dtype":")" + format.safetensors + R"(","shape":[2,3],"data_offsets":[0,)" +
                               std::to_string(bytes.size()) + "]}}";
    write(path, safetensors_file(header, bytes));
    const Safetensors read = load_safetensors(path);
    EXPECT_EQ(read.tensors.at("x").dtype(), format.type);
    EXPECT_EQ(bytes_in(read.tensors.at("x")), bytes);
    save_safetensors(path, {{"x", t}, {"views too", slice(reshape(t, {6}), 0, 1, 5)}}, {{"made by", "a test"}});
    const Safetensors again = load_safetensors(path);
    EXPECT_EQ(again.metadata, (std::map<std::string, std::string>{{"made by", "a test"}}));
    EXPECT_EQ(bytes_in(again.tensors.at("x")), bytes);
    EXPECT_EQ(bytes_in(again.tensors.at("views too")), bytes_in(slice(reshape(t, {6}), 0, 1, 5)));
  }
  EXPECT_NE(message_of<UsageError>([&] {
              save_safetensors(path, {{"x", zeros({3}, DType::fp4_e2m1)}});
            }).find("not a whole number of bytes"),
            std::string::npos);
}

TEST(TensorFiles, HostileFilesAreRefused) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x";
  const auto npy = [&](const std::string& text) {
    write(path, text);
    return message_of<FileError>([&] { (void)load_npy(path); });
  };
  const auto safetensors = [&](const std::string& header, std::size_t bytes) {
    write(path, safetensors_file(header, std::vector<char>(bytes)));
    return message_of<FileError>([&] { (void)load_safetensors(path); });
  };
  const auto says = [](const std::string& message, const std::string& what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  says(npy("PK"), "does not begin with");
  says(npy(npy_file("<f4", "(1000000000000, 1000)", {})), "truncated");
  says(npy(npy_file("<f4", "(10000000000, 10000000000)", {})), "x");
  says(npy(npy_file("<f4", "(2,)", std::vector<char>(9))), "follow the array");
  says(npy(npy_file("<c8", "(1,)", std::vector<char>(8))), "not a type of Weft's arrays, which are f32, f64");
  says(npy(npy_file("|O", "(1,)", std::vector<char>(8))), "Python objects");
  says(npy(npy_file("|b1", "(1,)", {2})), "only 0 and 1 are truth values");
  says(safetensors(R"({"x":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", 8), "C64");
  says(safetensors(R"({"x":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[0,1]}})", 1), "F8_E8M0");
  says(safetensors(R"({"x":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2), "not a whole number of bytes");
  says(safetensors(R"({"x":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,3]}})", 3), "takes 4 bytes");
  says(safetensors(R"({"x":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,0]}})", 0), "x");
  says(
      safetensors(
          R"({"x":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"y":{"dtype":"I64","shape":[1],"data_offsets":[4,12]}})",
          12),
      "overlap");
  write(path, "not a zip");
  EXPECT_THROW((void)load_npz(path), FileError);
  EXPECT_THROW((void)load_npy(folder.path() / "missing"), FileError);
  EXPECT_THROW(save_npy(path, Tensor()), UsageError);
  EXPECT_THROW(save_npz(path, {{"", zeros({1})}}), UsageError);
  EXPECT_EQ(text_of(path), "not a zip");  // what cannot be saved leaves the file as it was
}

TEST(TensorFiles, EveryTypeOfGgufBothWays) {
  const TemporaryFolder folder;
  NamedTensors tensors;
  std::vector<Tensor> others;
  for (const Element& row : kElements) {
    const Shape shape{3, 512};
    const Tensor t = tensor_from_bytes(bytes_for(row.type, 3 * 512).data(), shape, row.type);
    if (row.gguf >= 0)
      tensors.emplace(row.name, t);
    else
      others.push_back(t);
  }
  EXPECT_EQ(tensors.size(), 21u);
  save_gguf(folder.path() / "a.gguf", tensors, {{"general.name", "all"}});
  const Gguf read = load_gguf(folder.path() / "a.gguf");
  EXPECT_EQ(read.metadata.at("general.name"), "all");
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (const auto& [name, t] : tensors) {
    EXPECT_EQ(name_of(read.tensors.at(name).dtype()), name);
    EXPECT_EQ(read.tensors.at(name).shape(), t.shape()) << name;
    EXPECT_EQ(bytes_in(read.tensors.at(name)), bytes_in(t)) << name;
    EXPECT_EQ(bytes_in(t), bytes_for(t.dtype(), 3 * 512)) << name;
  }
  save_gguf(folder.path() / "b.gguf", read.tensors, read.metadata);
  EXPECT_EQ(text_of(folder.path() / "a.gguf"), text_of(folder.path() / "b.gguf"));
  for (const Tensor& t : others)
    EXPECT_NE(message_of<UsageError>([&] {
                save_gguf(folder.path() / "c.gguf", {{"x", t}});
              }).find("GGUF has no " + std::string(name_of(t.dtype()))),
              std::string::npos);
  const Tensor blocks = tensors.at("q4_k");
  EXPECT_NE(message_of<UsageError>([&] {
              save_safetensors(folder.path() / "d", {{"x", blocks}});
            }).find("the format has no q4_k; cast it"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              save_npz(folder.path() / "d", {{"x", blocks}});
            }).find("the format has no q4_k"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { (void)load_gguf(folder.path() / "none.gguf"); }).find("none.gguf"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::tensor_files_test
