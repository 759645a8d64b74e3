// Versions of a workflow: an equal tree is replayed, a changed one tells its edits.
#include "weft/workflow/render.hpp"

#include <gtest/gtest.h>

#include "weft/error.hpp"
#include "weft/operations.hpp"

namespace weft::workflow {
namespace {

Value tree_with(const char* children) {
  return Value::parse(std::string(R"({"type": "Sequential", "children": [)") + children + "]}");
}

TEST(RenderedWorkflow, ReplaysEqualTreesAndTellsEdits) {
  auto registry = std::make_shared<operations::Registry>();
  int calls = 0;
  registry->add({.space = "math", .name = "twice"}, [&](operations::Context& call) {
    ++calls;
    return Value(2 * call.input().integer());
  });
  registry->add({.space = "math", .name = "next"},
                [&](operations::Context& call) { return Value(call.input().integer() + 1); });
  operations::Exchange exchange(registry);
  Rendered rendered(exchange);
  EXPECT_THROW((void)rendered.start(3), UsageError);
  constexpr const char* kTwice =
      R"({"type": "Operation", "props": {"id": "a", "name": "math.twice", "input": "$.input"}})";
  constexpr const char* kNext = R"({"type": "Operation", "props": {"id": "b", "name": "math.next", "input": "$.a"}})";
  const Value first = tree_with((std::string(kTwice) + "," + kNext).c_str());
  EXPECT_TRUE(rendered.render(first).empty());
  EXPECT_EQ(rendered.start(5).get(), Value(11));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(rendered.render(Value::parse(first.to_json())).empty());
  EXPECT_EQ(rendered.version(), 1) << "nothing was checked again";
  EXPECT_EQ(rendered.start(6).get(), Value(13));
  EXPECT_EQ(calls, 2);

  // One more operation at the beginning, which moves nothing.
  const Value second = tree_with((R"({"type": "Operation", "props": {"id": "c", "name": "math.next", "input": 1}},)" +
                                  std::string(kTwice) + "," + kNext)
                                     .c_str());
  const auto edits = rendered.render(second);
  ASSERT_EQ(edits.size(), 1u);
  EXPECT_EQ(edits[0].kind, tree::Edit::Kind::insert);
  EXPECT_EQ(edits[0].to, 0u);
  EXPECT_EQ(rendered.version(), 2);
  EXPECT_EQ(rendered.start(5).get(), Value(11));

  // A broken version changes nothing.
  EXPECT_THROW(rendered.render(tree_with(R"({"type": "Operation", "props": {"name": "math.thrice"}})")), UsageError);
  EXPECT_THROW(rendered.render(Value::parse(R"({"type": "Loop"})")), UsageError);
  EXPECT_EQ(rendered.start(5).get(), Value(11));
}

}  // namespace
}  // namespace weft::workflow
