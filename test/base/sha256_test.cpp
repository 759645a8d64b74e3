#include "base/sha256.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace weft {
namespace {

std::string hash_of(std::string_view text, std::size_t piece = std::string_view::npos) {
  Sha256 hash;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size())))
    hash.add(std::as_bytes(std::span(text.substr(0, piece))));
  return hash.finish();
}

// The examples of FIPS 180-4, and lengths around the end of a block (from Python's hashlib).
TEST(Sha256Test, KnownHashes) {
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hash_of(std::string(55, 'x')), "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EXPECT_EQ(hash_of(std::string(56, 'x')), "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  EXPECT_EQ(hash_of(std::string(64, 'x')), "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
}

TEST(Sha256Test, PiecesDoNotMatter) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  const std::string whole = hash_of(text);
  for (const std::size_t piece : {1, 3, 63, 64, 65, 127, 999}) EXPECT_EQ(hash_of(text, piece), whole) << piece;
}

}  // namespace
}  // namespace weft
