// Vector memories as operations: entries, searches, rights, limits.
#include <gtest/gtest.h>

#include "base/temporary_folder.hpp"
#include "operations/code_of.hpp"
#include "weft/catalogue.hpp"
#include "weft/memory.hpp"
#include "weft/ops.hpp"

namespace weft::operations::memory_test {
namespace {

using test::code_of;
Value members(std::initializer_list<ValueObject::Member> list) { return Value::object(list); }

struct MemoryOperations : testing::Test {
  MemoryOperations() { set_default_device(parse_device("cpu")); }
  test::TemporaryFolder folder;
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Catalogue catalogue{
      registry,
      {.read_folders = {folder.path()}, .write_folders = {folder.path()}, .memories_max = 2, .memory_entries_max = 3}};
  Exchange exchange{registry};
  CallOptions owner{.identity = registry->owner()};
  const std::string path = (folder.path() / "m.metatensor").string();

  Value call(std::string_view id, Value input) { return exchange.call(id, std::move(input), owner).data; }
  std::string code(std::string_view id, Value input) {
    return code_of([&] { call(id, std::move(input)); });
  }
  void fill() {
    call("memory.create", members({{"memory", "m"}, {"width", 2}}));
    call("memory.add", members({{"memory", "m"},
                                {"entries", Value::parse(R"([{"id": "a", "text": "east", "metadata": {"n": 1}},
                                                             {"id": "b", "text": "north", "namespace": "far"}])")},
                                {"embeddings", tensor({{1.0f, 0.0f}, {0.0f, 2.0f}})}}));
  }
};

TEST_F(MemoryOperations, AddSearchRecallAndFiles) {
  fill();
  const Value north = members({{"memory", "m"}, {"embedding", tensor({0.1f, 1.0f})}});
  const Value matches = call("memory.search", north)["matches"];
  ASSERT_EQ(matches.elements().size(), 2u);
  EXPECT_EQ(matches[std::size_t{0}]["id"], Value("b"));
  EXPECT_NEAR(matches[std::size_t{0}]["similarity"].number(), 1 / std::sqrt(1.01), 1e-6);
  Value limited = north;
  limited.members().set("where", members({{"n", 1}}));
  EXPECT_EQ(call("memory.search", limited)["matches"][std::size_t{0}]["text"], Value("east"));
  Value budget = north;
  budget.members().set("tokens", 3);
  EXPECT_EQ(call("memory.recall", budget)["text"], Value("[1] north\n"));
  EXPECT_EQ(call("memory.describe", members({{"memory", "m"}})),
            Value::parse(R"({"width": 2, "entries": 2, "namespaces": {"": 1, "far": 1}})"));
  call("memory.save", members({{"memory", "m"}, {"path", path}}));
  EXPECT_EQ(call("memory.remove", members({{"memory", "m"}, {"ids", Value::array({"a", "x"})}}))["removed"], Value(1));
  EXPECT_EQ(call("memory.load", members({{"memory", "again"}, {"path", path}}))["entries"], Value(2));
  call("memory.drop", members({{"memory", "again"}}));
  EXPECT_EQ(code("memory.describe", members({{"memory", "again"}})), "MEMORY_NOT_FOUND");
}

TEST_F(MemoryOperations, OpenKeepsChangesInTheFile) {
  EXPECT_EQ(code("memory.open", members({{"memory", "m"}, {"path", path}})), "FILE_ERROR") << "no file and no width";
  EXPECT_EQ(call("memory.open", members({{"memory", "m"}, {"path", path}, {"width", 2}})),
            Value::parse(R"({"entries": 0, "width": 2})"));
  EXPECT_EQ(code("memory.open", members({{"memory", "n"}, {"path", path}})), "FILE_ERROR") << "it is open";
  const Value entries = Value::parse(R"([{"id": "a", "text": "east"}, {"id": "b", "text": "north"}])");
  call("memory.add",
       members({{"memory", "m"}, {"entries", entries}, {"embeddings", tensor({{1.0f, 0.0f}, {0.0f, 2.0f}})}}));
  EXPECT_EQ(memory::Store::load(path).size(), 2u) << "as soon as the call has ended";
  EXPECT_EQ(
      code("memory.add", members({{"memory", "m"},
                                  {"entries", Value::parse(R"([{"id": "c", "text": "x"}, {"id": "a", "text": "y"}])")},
                                  {"embeddings", ones({2, 2})}})),
      "MEMORY_FULL");
  call("memory.remove", members({{"memory", "m"}, {"ids", Value::array({"b"})}}));
  EXPECT_EQ(memory::Store::load(path).size(), 1u);
  call("memory.save", members({{"memory", "m"}, {"path", path}}));  // the journal goes into the file
  EXPECT_EQ(memory::Store::load(path).size(), 1u);
  call("memory.drop", members({{"memory", "m"}}));
  EXPECT_EQ(call("memory.open", members({{"memory", "again"}, {"path", path}}))["entries"], Value(1));
  EXPECT_EQ(
      call("memory.search", members({{"memory", "again"}, {"embedding", ones({2})}}))["matches"].elements().size(), 1u);
  EXPECT_EQ(code("memory.open", members({{"memory", "n"}, {"path", "/tmp/elsewhere.metatensor"}, {"width", 2}})),
            kAccessDenied);
}

TEST_F(MemoryOperations, RefuseWhatIsWrongAndAddAllOrNone) {
  fill();
  const auto adding = [&](const char* entries, const Tensor& embeddings) {
    return code("memory.add",
                members({{"memory", "m"}, {"entries", Value::parse(entries)}, {"embeddings", embeddings}}));
  };
  EXPECT_EQ(adding(R"([{"text": "x"}])", ones({1, 3})), "USAGE_ERROR");
  EXPECT_EQ(adding(R"([{"text": "x"}])", ones({2, 2})), "SHAPE_ERROR");
  EXPECT_EQ(adding(R"([{"text": "x"}])", zeros({1, 2})), "USAGE_ERROR");
  EXPECT_EQ(adding(R"([{"text": "x"}, {"text": "y"}])", ones({2, 2})), "MEMORY_FULL");
  EXPECT_EQ(adding(R"([])", ones({0, 2})), kValidationError);
  call("memory.remove", members({{"memory", "m"}, {"ids", Value::array({"b"})}}));
  EXPECT_EQ(adding(R"([{"id": "c", "text": "x"}, {"id": "a", "text": "y"}])", ones({2, 2})), "USAGE_ERROR");
  EXPECT_EQ(call("memory.describe", members({{"memory", "m"}}))["entries"], Value(1)) << "c went again";
  EXPECT_EQ(code("memory.add", members({{"memory", "m"}, {"entries", Value::parse(R"([{"text": "x"}])")}})),
            "NO_EMBEDDING");
  EXPECT_EQ(code("memory.add",
                 members({{"memory", "m"}, {"entries", Value::parse(R"([{"text": "x"}])")}, {"model", "none"}})),
            "MODEL_NOT_FOUND");
  EXPECT_EQ(code("memory.search", members({{"memory", "m"}, {"query", "x"}})), "NO_EMBEDDING");
  EXPECT_EQ(code("memory.create", members({{"memory", "m"}, {"width", 2}})), "MEMORY_EXISTS");
  call("memory.create", members({{"memory", "n"}, {"width", 2}}));
  EXPECT_EQ(code("memory.create", members({{"memory", "o"}, {"width", 2}})), "MEMORY_LIMIT");
  EXPECT_EQ(code("memory.save", members({{"memory", "m"}, {"path", "/tmp/elsewhere.metatensor"}})), kAccessDenied);
}

TEST_F(MemoryOperations, RightsAreThoseOfMemoryFileAndModel) {
  fill();
  call("memory.save", members({{"memory", "m"}, {"path", path}}));
  const Identity reader{.id = "r",
                        .scopes = {"memory:run", "memory:create", "files:read", "files:write"},
                        .resources = {{"memory:m", {"read"}}, {"memory:new", {"create"}}}};
  const auto as_reader = [&](std::string_view id, Value input) {
    return code_of([&] { exchange.call(id, std::move(input), {.identity = reader}); });
  };
  const Tensor x = ones({2});
  EXPECT_EQ(as_reader("memory.search", members({{"memory", "m"}, {"embedding", x}})), "none");
  EXPECT_EQ(as_reader("memory.search", members({{"memory", "other"}, {"embedding", x}})), kAccessDenied);
  EXPECT_EQ(as_reader("memory.remove", members({{"memory", "m"}, {"ids", Value::array({"a"})}})), kAccessDenied);
  EXPECT_EQ(as_reader("memory.load", members({{"memory", "new"}, {"path", path}})), kAccessDenied)
      << "no right on the file";
  EXPECT_EQ(as_reader("memory.open", members({{"memory", "new"}, {"path", path}})), kAccessDenied);
  EXPECT_EQ(as_reader("memory.save", members({{"memory", "m"}, {"path", path}})), kAccessDenied);
  // The memory may run models, its caller may not.
  EXPECT_EQ(as_reader("memory.search", members({{"memory", "m"}, {"query", "x"}, {"model", "secret"}})), kAccessDenied);
}

}  // namespace
}  // namespace weft::operations::memory_test
