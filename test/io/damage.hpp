// Files with several kinds of damage at once.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/mutations.hpp"
#include "weft/error.hpp"

namespace weft::io {

// Changes, removes, repeats and inserts bytes, numbers and words of headers.
inline std::string damaged(std::string bytes, std::mt19937_64& random) {
  static const std::string kWords[] = {"'shape': ",
                                       "(",
                                       ")",
                                       ",",
                                       "'descr': ",
                                       "'<f8'",
                                       "'|O'",
                                       "True",
                                       "9223372036854775807",
                                       "-1",
                                       "{",
                                       "}",
                                       std::string("\xff\xff\xff\xff", 4),
                                       std::string("\0\0\0\0", 4),
                                       "PK\1\2",
                                       "PK\3\4",
                                       "PK\5\6",
                                       std::string("\1\0\x10\0", 4),
                                       "\x93NUMPY"};
  for (std::uint64_t i = 1 + random() % 5; i > 0 && !bytes.empty(); --i) {
    const std::size_t at = random() % bytes.size();
    switch (random() % 7) {
      case 0: bytes.resize(at); break;
      case 1: bytes.erase(at, 1 + random() % 16); break;
      case 2: bytes.insert(at, bytes.substr(random() % bytes.size(), 1 + random() % 64)); break;
      case 3: bytes.insert(at, kWords[random() % std::size(kWords)]); break;
      case 4: {
        const std::string& word = kWords[random() % std::size(kWords)];
        bytes.replace(at, word.size(), word);
        break;
      }
      default: bytes[at] = static_cast<char>(random());
    }
  }
  return bytes;
}

// Reads many damaged copies of these files; each is read or refused, within little memory.
template <class Read>
void survive_damage(const std::vector<std::string>& files, const Read& read) {
  const test::MemoryLimit limit(std::size_t{256} << 20);
  const int rounds = test::every_mutation() ? 2'000'000 : 20'000;
  std::mt19937_64 random(3);
  int taken = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string bytes = damaged(files[random() % files.size()], random);
    try {
      read(bytes);
      ++taken;
    } catch (const FileError&) {
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, rounds);
}

}  // namespace weft::io
