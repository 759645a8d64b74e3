// Repair of UTF-8, classes of characters, normalization forms.
#include "text/unicode.hpp"
#include "base/utf8.hpp"

#include <gtest/gtest.h>

#include <random>

#include "text/byte_level.hpp"
#include "text/normalization.hpp"
#include "text/normalizer.hpp"

namespace weft::text {
namespace {

std::string repaired(std::string_view text) {
  std::string out;
  append_repaired(out, text);
  return out;
}

TEST(Unicode, ReplacesEachIllFormedPart) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(repaired("aé中😀"), "aé中😀");
  EXPECT_EQ(repaired("a\xFF"
                     "b"),
            "a" + r + "b");
  EXPECT_EQ(repaired("\xE4\xB8"
                     "x"),
            r + "x");  // the start of a character is one part
  EXPECT_EQ(repaired("\xF0\x9F\x98"), r);
  EXPECT_EQ(repaired("\xE0\x80\x80"), r + r + r);          // what cannot become well-formed is bytes
  EXPECT_EQ(repaired("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(repaired("\xC0\xAF"), r + r);
}

TEST(Unicode, KnowsIncompleteTails) {
  EXPECT_EQ(incomplete_tail("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_tail("a\xE4\xB8"), 2u);
  EXPECT_EQ(incomplete_tail("a\xC3"), 1u);
  EXPECT_EQ(incomplete_tail("aé"), 0u);
  EXPECT_EQ(incomplete_tail("a\xFF"), 0u);
  EXPECT_EQ(incomplete_tail("\xE0\x80"), 0u);
  EXPECT_EQ(incomplete_tail("\x80\x80\x80\x80"), 0u);
  EXPECT_EQ(incomplete_tail(""), 0u);
}

TEST(Unicode, ClassesOfCharacters) {
  const CharacterTable& table = CharacterTable::get();
  struct Case {
    char32_t c;
    std::uint32_t has, lacks;
  };
  const Case cases[] = {{'a', kLetter | kLower | kWord, kSpace | kUpper},
                        {U'É', kLetter | kUpper, kLower},
                        {U'中', kLetter | kCaseless, kUpper},
                        {'_', kPunctuation | kWord, kLetter},
                        {'\n', kSpace | kLineEnd | kOther, kWord},
                        {0x85, kSpace, kLineEnd},
                        {0x180E, kOther, kSpace},
                        {0x301, kMark | kNonspacing | kWord, kLetter},
                        {U'Ⅷ', kNumber | kWord, kLetter},
                        {U'²', kNumber, kWord},
                        {U'€', kSymbol, kPunctuation},
                        {0x24B6, kSymbol | kWord, kLetter},
                        {0x10FFFF, 0, kLetter | kWord}};
  for (const Case& c : cases) {
    EXPECT_EQ(table[c.c] & c.has, c.has) << std::uint32_t(c.c);
    EXPECT_EQ(table[c.c] & c.lacks, 0u) << std::uint32_t(c.c);
  }
}

TEST(Normalization, Forms) {
  using F = NormalizationForm;
  struct Case {
    const char* text;
    F form;
    const char* expected;
  };
  const Case cases[] = {{"e\u0301", F::kNfc, "é"},
                        {"é", F::kNfd, "e\u0301"},
                        {"a\u0323\u0307", F::kNfc, "ạ\u0307"},
                        {"a\u0307\u0323", F::kNfc, "ạ\u0307"},  // marks in order first
                        {"\u212b", F::kNfc, "Å"},
                        {"\u1112\u1161\u11ab", F::kNfc, "한"},
                        {"한", F::kNfd, "\u1112\u1161\u11ab"},
                        {"가\u11a8", F::kNfc, "각"},
                        {"ﬁ①²", F::kNfkc, "fi12"},
                        {"ﬁ", F::kNfc, "ﬁ"},
                        {"ǅ", F::kNfkd, "Dz\u030c"},
                        {"\u0344", F::kNfc, "\u0308\u0301"},  // never composed
                        {"\u0301x", F::kNfc, "\u0301x"},
                        {"plain", F::kNfkd, "plain"},
                        {"", F::kNfc, ""}};
  for (const Case& c : cases) EXPECT_EQ(normalize(c.text, c.form), c.expected) << c.text;
}

// Canonical characters whose parts have compatible forms: NFC leaves them, and NFKC does not.
TEST(Normalization, CompatiblePartsOfCanonicalCharacters) {
  const std::pair<char32_t, std::u32string> cases[] = {{0x385, {0x20, 0x308, 0x301}},
                                                       {0x3D3, {0x38E}},
                                                       {0x3D4, {0x3AB}},
                                                       {0x1E9B, {0x1E61}},
                                                       {0x1FC1, {0x20, 0x308, 0x342}},
                                                       {0x1FCD, {0x20, 0x313, 0x300}},
                                                       {0x1FCE, {0x20, 0x313, 0x301}},
                                                       {0x1FCF, {0x20, 0x313, 0x342}},
                                                       {0x1FDD, {0x20, 0x314, 0x300}},
                                                       {0x1FDE, {0x20, 0x314, 0x301}},
                                                       {0x1FDF, {0x20, 0x314, 0x342}},
                                                       {0x1FED, {0x20, 0x308, 0x300}}};
  for (const auto& [c, expected] : cases) {
    const std::string text = encode_utf8(std::u32string(1, c));
    EXPECT_EQ(normalize(text, NormalizationForm::kNfkc), encode_utf8(expected)) << std::uint32_t(c);
    EXPECT_EQ(normalize(text, NormalizationForm::kNfc), text) << std::uint32_t(c);
  }
}

TEST(Normalization, ManyMarksTakeLinearTime) {
  std::string marks = "a";
  std::mt19937 draw(1);
  for (int i = 0; i < 1'000'000; ++i) marks += draw() % 2 ? "\u0301" : "\u0323";
  EXPECT_EQ(normalize(marks, NormalizationForm::kNfd).size(), marks.size());  // by swaps it would take hours
}

TEST(ByteLevel, EveryByteHasACharacter) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(static_cast<char>(b));
  std::string characters;
  append_as_characters(characters, bytes);
  EXPECT_EQ(bytes_of_characters(characters), bytes);
  EXPECT_EQ(character_of_byte(' '), U'Ġ');
  EXPECT_EQ(character_of_byte('\n'), U'Ċ');
  EXPECT_FALSE(bytes_of_characters("a b"));
  EXPECT_FALSE(bytes_of_characters("中"));
}

TEST(Lowercase, ByCharacter) { EXPECT_EQ(lowercase("AbÇΣİß"), "abçσi\u0307ß"); }

}  // namespace
}  // namespace weft::text
