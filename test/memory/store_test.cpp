// Vector memory against a search in double, one row after another; files that are damaged.
#include "weft/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "base/file.hpp"
#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "weft/error.hpp"
#include "weft/metatensor.hpp"
#include "weft/ops.hpp"

namespace weft::memory {
namespace {

using Vector = std::vector<float>;

Vector random_vector(std::mt19937& random, std::size_t width) {
  std::normal_distribution<float> normal;
  Vector v(width);
  for (float& x : v) x = normal(random);
  return v;
}
double cosine(const Vector& a, const Vector& b) {
  double product = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return product / std::sqrt(aa * bb);
}

// Over several blocks, with removals in between.
TEST(Memory, SearchIsExact) {
  std::mt19937 random(3);
  constexpr std::size_t kWidth = 24;
  Store store(kWidth);
  std::map<std::string, Vector> reference;
  for (int i = 0; i < 2600; ++i) {
    Vector v = random_vector(random, kWidth);
    const std::string id = store.add({.id = "e" + std::to_string(i),
                                      .name_space = i % 3 ? "notes" : "facts",
                                      .text = "text " + std::to_string(i),
                                      .metadata = Value::object({{"even", i % 2 == 0}, {"n", i % 5}})},
                                     v);
    reference[id] = std::move(v);
    if (i % 7 == 6) {
      const std::string gone = "e" + std::to_string(i - 5);
      EXPECT_TRUE(store.remove(gone));
      reference.erase(gone);
    }
  }
  EXPECT_EQ(store.size(), reference.size());
  for (int q = 0; q < 5; ++q) {
    const Vector query = random_vector(random, kWidth);
    for (const SearchOptions& options :
         {SearchOptions{.top_k = 1}, SearchOptions{.top_k = 20}, SearchOptions{.top_k = 10, .name_space = "facts"},
          SearchOptions{.top_k = 15, .where = Value::object({{"even", true}, {"n", 3}})},
          SearchOptions{.top_k = 5000, .similarity_min = 0.3}}) {
      std::vector<std::pair<double, std::string>> expected;
      for (const auto& [id, v] : reference) {
        const Entry& entry = *store.find(id);
        if (options.name_space && entry.name_space != *options.name_space) continue;
        if (options.where.find("n") && !(entry.metadata["even"] == Value(true) && entry.metadata["n"] == Value(3)))
          continue;
        const double similarity = cosine(v, query);
        if (similarity >= options.similarity_min) expected.emplace_back(-similarity, id);
      }
      std::sort(expected.begin(), expected.end());
      expected.resize(std::min(expected.size(), options.top_k));
      const std::vector<Match> found = store.search(query, options);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i].similarity, -expected[i].first, 1e-5);
        EXPECT_NEAR(cosine(reference.at(found[i].entry.id), query), found[i].similarity, 1e-5);
      }
      EXPECT_EQ(found.empty() ? "" : found[0].entry.id, expected.empty() ? "" : expected[0].second);
    }
  }
  EXPECT_TRUE(store.search(random_vector(random, kWidth), {.top_k = 0}).empty());
}

TEST(Memory, EqualEmbeddingsComeInTheirOrder) {
  Store store(2);
  for (const char* id : {"a", "b", "c"}) store.add({.id = id}, Vector{1, 1});
  store.add({.id = "d"}, Vector{100, 100});
  std::string order;
  for (const Match& match : store.search(Vector{2, 2}, {.top_k = 3})) order += match.entry.id;
  EXPECT_EQ(order, "abc");
  EXPECT_FALSE(store.remove("x"));
  EXPECT_TRUE(store.remove("a"));  // d takes its place
  order.clear();
  for (const Match& match : store.search(Vector{2, 2})) order += match.entry.id;
  EXPECT_EQ(order, "dbc");
  EXPECT_NE(store.add({.text = "x"}, Vector{1, 0}), store.add({.text = "x"}, Vector{1, 0})) << "ids are made";
  EXPECT_EQ(store.namespaces(), (std::map<std::string, std::size_t>{{"", 5}}));
}

TEST(Memory, RecallPacksWhatFits) {
  Store store(2);
  const auto at = [](double degrees) {
    return Vector{static_cast<float>(std::cos(degrees / 57.29578)), static_cast<float>(std::sin(degrees / 57.29578))};
  };
  store.add({.text = "nearest"}, at(1));
  store.add({.text = std::string(400, 'x')}, at(2));
  store.add({.text = "third"}, at(3));
  store.add({.text = "far away"}, at(120));
  const auto bytes = [](std::string_view text) { return text.size(); };
  const Recall recall = store.recall(at(0), {.token_budget = 25, .tokens = bytes, .search = {.similarity_min = 0}});
  EXPECT_EQ(recall.text, "[1] nearest\n[2] third\n");
  EXPECT_EQ(recall.tokens, recall.text.size());
  ASSERT_EQ(recall.matches.size(), 2u);
  EXPECT_EQ(recall.matches[1].entry.text, "third");
  EXPECT_EQ(store.recall(at(0), {.token_budget = 3, .tokens = bytes}).text, "");
  EXPECT_EQ(store.recall(at(0), {.token_budget = 1000}).matches.size(), 4u);
  EXPECT_EQ(estimated_tokens("12345"), 2u);
}

TEST(Memory, FilesGoRoundBitForBit) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.metatensor";
  std::mt19937 random(4);
  Store store(8);
  for (int i = 0; i < 1100; ++i)
    store.add({.id = std::to_string(i),
               .name_space = "n",
               .text = "\u00e9 \"q\" " + std::to_string(i),
               .metadata = Value::object({{"i", i}})},
              random_vector(random, 8));
  store.save(path);
  EXPECT_TRUE(metatensor::validate(path).empty());
  const Store loaded = Store::load(path);
  const Vector query = random_vector(random, 8);
  const auto a = store.search(query, {.top_k = 50}), b = loaded.search(query, {.top_k = 50});
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].similarity, b[i].similarity);
    EXPECT_EQ(to_value(a[i]), to_value(b[i]));
  }
  Store empty(3);
  empty.save(path);
  EXPECT_EQ(Store::load(path).size(), 0u);
  EXPECT_EQ(Store::load(path).width(), 3);
}

TEST(Memory, RefusesWrongEntriesAndFiles) {
  EXPECT_THROW(Store(0), UsageError);
  EXPECT_THROW(Store(1 << 20), UsageError);
  Store store(2);
  store.add({.id = "a"}, Vector{1, 0});
  const float nan = std::nanf(""), large = 3e38f;
  EXPECT_THROW(store.add({.id = "a"}, Vector{1, 0}), UsageError);
  EXPECT_THROW(store.add({}, Vector{1}), UsageError);
  EXPECT_THROW(store.add({}, Vector{0, 0}), UsageError);
  EXPECT_THROW(store.add({}, Vector{nan, 0}), UsageError);
  EXPECT_NO_THROW(store.add({}, Vector{large, large}));
  EXPECT_THROW(store.add({.text = "\xff"}, Vector{1, 0}), UsageError);
  EXPECT_THROW(store.add({.metadata = 3}, Vector{1, 0}), UsageError);
  EXPECT_THROW(store.add({.metadata = Value::object({{"x", zeros({1})}})}, Vector{1, 0}), UsageError);
  EXPECT_THROW((void)store.search(Vector{1, 2, 3}), UsageError);
  EXPECT_EQ(store.size(), 2u);

  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.metatensor";
  EXPECT_THROW(Store::load(path), FileError);
  store.save(path);
  const std::string whole = read_text_file(path);
  for (std::size_t cut = 0; cut < whole.size(); cut += 37) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, cut);
    EXPECT_THROW(Store::load(path), FileError) << cut;
  }
  const auto refused = [&](const metatensor::Writer& writer) {
    writer.save(path);
    EXPECT_THROW(Store::load(path), FileError);
  };
  const std::vector<std::string> good = {R"({"id": "a", "namespace": "", "text": "", "metadata": {}})"},
                                 no_id = {R"({"id": "", "namespace": "", "text": "", "metadata": {}})"},
                                 wrong = {R"({"id": 3})"}, twice = {good[0], good[0]};
  refused(metatensor::Writer().tensor("embeddings", ones({1, 2})).blob("entries", good));
  refused(metatensor::Writer().tensor("embeddings", ones({2, 2})).blob("entries", good).metadata("weft.memory", "1"));
  refused(metatensor::Writer().tensor("embeddings", ones({1, 2})).blob("entries", no_id).metadata("weft.memory", "1"));
  refused(metatensor::Writer().tensor("embeddings", ones({1, 2})).blob("entries", wrong).metadata("weft.memory", "1"));
  refused(metatensor::Writer().tensor("embeddings", ones({2, 2})).blob("entries", twice).metadata("weft.memory", "1"));
  refused(metatensor::Writer().tensor("embeddings", zeros({1, 2})).blob("entries", good).metadata("weft.memory", "1"));
  refused(metatensor::Writer()
              .tensor("embeddings", full({1, 2}, 1, DType::f16))
              .blob("entries", good)
              .metadata("weft.memory", "1"));
}

}  // namespace
}  // namespace weft::memory
