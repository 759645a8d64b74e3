// Component trees: what changed from one version to the next.
#include "weft/tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/message_of.hpp"
#include "weft/error.hpp"

namespace weft::tree {
namespace {

Value leaf(std::string_view type, Value props = Value::Object()) {
  return Value::object({{"type", type}, {"props", std::move(props)}, {"children", Value::Array()}});
}
Value keyed(std::string_view key, std::string_view type = "Item") { return leaf(type, Value::object({{"key", key}})); }
Value list(Value::Array children, std::string_view type = "List") {
  return Value::object({{"type", type}, {"props", Value::Object()}, {"children", std::move(children)}});
}
Value letters(std::string_view text) {
  Value::Array children;
  for (const char c : text) children.push_back(keyed(std::string(1, c)));
  return list(std::move(children));
}
std::size_t count_of(const std::vector<Edit>& edits, Edit::Kind kind) {
  return static_cast<std::size_t>(
      std::count_if(edits.begin(), edits.end(), [&](const Edit& e) { return e.kind == kind; }));
}

TEST(Tree, EqualTreesHaveNoDifference) {
  EXPECT_TRUE(difference(letters("abc"), letters("abc")).empty());
  EXPECT_TRUE(
      difference(Value::parse(R"({"type": "A"})"), Value::parse(R"({"type": "A", "props": {}, "children": []})"))
          .empty());
}

TEST(Tree, KeyedChildrenMoveAsLittleAsPossible) {
  const struct {
    const char *before, *after;
    std::size_t removes, moves, inserts;
  } cases[] = {{"abcde", "abxcde", 0, 0, 1}, {"abcde", "abde", 1, 0, 0},  {"abcde", "eabcd", 0, 1, 0},
               {"abcde", "bcdea", 0, 1, 0},  {"abcde", "edcba", 0, 4, 0}, {"abcdef", "adcbef", 0, 2, 0},
               {"abc", "xyz", 3, 0, 3},      {"abcdef", "fxbd", 3, 1, 1}, {"", "ab", 0, 0, 2},
               {"ab", "", 2, 0, 0}};
  for (const auto& c : cases) {
    const auto edits = difference(letters(c.before), letters(c.after));
    EXPECT_EQ(count_of(edits, Edit::Kind::remove), c.removes) << c.before << " " << c.after;
    EXPECT_EQ(count_of(edits, Edit::Kind::move), c.moves) << c.before << " " << c.after;
    EXPECT_EQ(count_of(edits, Edit::Kind::insert), c.inserts) << c.before << " " << c.after;
    EXPECT_EQ(edits.size(), c.removes + c.moves + c.inserts);
    EXPECT_EQ(patched(letters(c.before), edits), letters(c.after)) << c.before << " " << c.after;
  }
}

TEST(Tree, ReplacedTypesPropsAndNestedTrees) {
  const Value before = list({keyed("a"), list({keyed("x"), keyed("y")}, "Inner"), leaf("Relu")});
  const Value after = list({keyed("a", "Other"), list({keyed("y"), keyed("x"), keyed("z")}, "Inner"),
                            leaf("Relu", Value::object({{"slope", 0.1}}))});
  const auto edits = difference(before, after);
  EXPECT_EQ(patched(before, edits), after);
  EXPECT_EQ(count_of(edits, Edit::Kind::remove), 1u) << "an equal key with another type is another child";
  EXPECT_EQ(count_of(edits, Edit::Kind::insert), 2u);
  EXPECT_EQ(count_of(edits, Edit::Kind::move), 1u);
  EXPECT_EQ(count_of(edits, Edit::Kind::update), 1u);
  EXPECT_EQ(edits_from(to_value(edits)), edits);
  const auto replaced = difference(leaf("A"), leaf("B"));
  ASSERT_EQ(replaced.size(), 1u);
  EXPECT_EQ(replaced[0].kind, Edit::Kind::replace);
  EXPECT_EQ(patched(leaf("A"), replaced), leaf("B"));
  // Without keys the i-th of a type is the i-th of that type: what is put between others disturbs nothing.
  const Value layers = list({leaf("Linear"), leaf("Linear")}),
              more = list({leaf("Norm"), leaf("Linear"), leaf("Relu"), leaf("Linear")});
  EXPECT_EQ(difference(layers, more).size(), 2u);
  EXPECT_EQ(patched(layers, difference(layers, more)), more);
}

// Random trees; the edits of their difference lead from the one to the other, also through JSON.
TEST(Tree, TheDifferenceLeadsFromTreeToTree) {
  std::mt19937 random(7);
  const auto below = [&](unsigned n) { return static_cast<std::size_t>(random() % n); };
  const auto grow = [&](const auto& self, int depth) -> Value {
    Value::Array children;
    std::string keys = "abcdefghij";
    std::shuffle(keys.begin(), keys.end(), random);
    const std::size_t count = depth == 0 ? 0 : below(7);
    for (std::size_t i = 0; i < count; ++i) {
      Value child = self(self, depth - 1);
      if (below(3) != 0)
        child.members().set("props", Value::object({{"key", std::string(1, keys[i])}, {"n", below(2)}}));
      children.push_back(std::move(child));
    }
    return list(std::move(children), below(2) ? "A" : "B");
  };
  for (int i = 0; i < 300; ++i) {
    const Value a = grow(grow, 3), b = grow(grow, 3);
    const auto edits = difference(a, b);
    ASSERT_EQ(patched(a, edits_from(Value::parse(to_value(edits).to_json()))), b) << a.to_json() << "\n" << b.to_json();
  }
}

TEST(Tree, RefusesWhatIsNotATree) {
  using test::message_of;
  for (const char* wrong :
       {"3", "{}", R"({"type": 3})", R"({"type": "A", "prop": {}})", R"({"type": "A", "props": []})",
        R"({"type": "A", "children": {}})", R"({"type": "A", "children": [3]})",
        R"({"type": "A", "children": [{"type": "B", "props": {"key": 1.5}}]})",
        R"({"type": "A", "children": [{"type": "B", "props": {"key": "x"}}, {"type": "C", "props": {"key": "x"}}]})"})
    EXPECT_THROW(normalised(Value::parse(wrong)), UsageError) << wrong;
  EXPECT_EQ(
      message_of<UsageError>([] { normalised(Value::parse(R"({"type": "A", "children": [{"type": "B"}, {}]})")); }),
      "/children/1: has no type that is a text");
  Value deep = leaf("A");
  for (int i = 0; i < 61; ++i) deep = list({deep});
  EXPECT_THROW(normalised(deep), UsageError);
  EXPECT_THROW(normalised(list(Value::Array(10'001, leaf("A")))), UsageError);
  for (const Edit& wrong :
       {Edit{.kind = Edit::Kind::remove, .from = 3}, Edit{.kind = Edit::Kind::move, .from = 0, .to = 3},
        Edit{.kind = Edit::Kind::insert, .to = 4, .element = leaf("A")},
        Edit{.kind = Edit::Kind::update, .path = "/children/x", .element = Value::Object()},
        Edit{.kind = Edit::Kind::update, .path = "/children/7", .element = Value::Object()},
        Edit{.kind = Edit::Kind::update, .path = "", .element = 3},
        Edit{.kind = Edit::Kind::insert, .to = 0, .element = keyed("a")}})
    EXPECT_THROW(patched(letters("abc"), {wrong}), UsageError);
  EXPECT_THROW(edits_from(Value::parse(R"([{"kind": "swap"}])")), UsageError);
  EXPECT_THROW(edits_from(Value::parse(R"([{"kind": "move", "path": "", "from": -1, "to": 0}])")), UsageError);
}

}  // namespace
}  // namespace weft::tree
