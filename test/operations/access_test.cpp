// Access: every way to an operation is tried by identities without the right, and by those who have it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "weft/operations.hpp"

namespace weft::operations::access_test {
namespace {

struct Guarded {
  const char* name;
  Access access;
};
const Guarded kGuarded[] = {
    {"scope", {.scopes = {"models:run"}}},
    {"scopes", {.scopes = {"models:run", "models:write"}}},
    {"any", {.any_scopes = {"admin", "models:write"}}},
    {"both", {.scopes = {"models:run"}, .any_scopes = {"admin", "audit"}}},
    {"resource", {.resource_type = "model", .resource_action = "run", .resource_input = "model"}},
    {"scope_and_resource",
     {.scopes = {"models:run"}, .resource_type = "model", .resource_action = "run", .resource_input = "model"}},
    {"function", {.function = "only_alice"}},
    {"missing_function", {.function = "nobody_defined_it"}},
    {"impossible", {.scopes = {""}}},
};

const std::optional<Identity> kIdentities[] = {
    std::nullopt,
    Identity{.id = "nothing"},
    Identity{.id = "admin"},  // an id gives no right
    Identity{.id = "wrong", .scopes = {"models:read", "Models:run", "models:run ", "models:*", "*", "models"}},
    Identity{.id = "runner", .scopes = {"models:run"}},
    Identity{.id = "writer", .scopes = {"models:write"}},
    Identity{
        .id = "other_model",
        .scopes = {"models:run"},
        .resources = {{"model:b", {"run"}}, {"model:", {"run"}}, {"model", {"run"}}, {"*", {"*"}}, {"*:a", {"*"}}}},
    Identity{.id = "other_action", .scopes = {"models:run"}, .resources = {{"model:a", {"read", "RUN", ""}}}},
    Identity{.id = "other_type", .resources = {{"dataset:a", {"run"}}, {"dataset:*", {"*"}}}},
    Identity{.id = "owner_of_a", .resources = {{"model:a", {"run"}}}},
    Identity{
        .id = "everything", .scopes = {"models:run", "models:write", "admin", ""}, .resources = {{"model:*", {"*"}}}},
    Identity{.id = "alice"},
};

// The rules once more, written as directly as they can be.
bool is_allowed(const Access& access, const std::optional<Identity>& who) {
  for (const std::string& scope : access.scopes)
    if (!who || std::count(who->scopes.begin(), who->scopes.end(), scope) == 0) return false;
  if (!access.any_scopes.empty()) {
    bool any = false;
    for (const std::string& scope : access.any_scopes)
      any |= who && std::count(who->scopes.begin(), who->scopes.end(), scope) > 0;
    if (!any) return false;
  }
  if (!access.resource_type.empty()) {
    const bool is_owner = who && (who->id == "owner_of_a" || who->id == "everything");
    if (!is_owner) return false;
  }
  if (!access.function.empty()) return access.function == "only_alice" && who && who->id == "alice";
  return true;
}

TEST(Access, NobodyGetsInWithoutTheRight) {
  auto registry = std::make_shared<Registry>();
  std::atomic<int> runs = 0;
  registry->add_access_function("only_alice",
                                [](const Identity* who, const Value&) { return who && who->id == "alice"; });
  for (const Guarded& each : kGuarded) {
    registry->add({.space = "guarded", .name = each.name, .access = each.access}, [&](Context&) {
      ++runs;
      return Value("secret");
    });
    registry->add({.space = "streams", .name = each.name, .kind = Kind::subscription, .access = each.access},
                  [&](Context& call) {
                    ++runs;
                    call.emit("secret");
                    return Value();
                  });
    registry->add({.space = "hidden", .name = each.name, .access = each.access, .visibility = Visibility::internal},
                  [&](Context&) {
                    ++runs;
                    return Value("secret");
                  });
  }
  // An open operation that calls what its caller names, with the authority and reach of its own: what a model does that
  // picks tools. One has no authority, one reaches nothing guarded.
  for (const auto& [name, reach] :
       {std::pair{"without_authority", std::vector<std::string>{"guarded.*", "hidden.*"}},
        std::pair{"without_reach", std::vector<std::string>{"guarded", "guarded.", "*", "guard*", "hidden.scop"}}})
    registry->add({.space = "deputy", .name = name},
                  {.run = [](Context& call) { return call.call(call.input("id").string(), call.input("input")); },
                   .reach = reach});
  Exchange exchange(registry);

  int refused = 0, allowed = 0;
  const auto attempt = [&](const std::string& what, bool may, std::string_view code, const auto& call) {
    const int before = runs;
    std::string answered = "let in";
    try {
      call();
    } catch (const OperationError& error) {
      answered = error.code();
      EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos);
    }
    EXPECT_EQ(answered, may ? "let in" : code) << what;
    EXPECT_EQ(runs, before + may) << what;
    ++(may ? allowed : refused);
  };

  for (const Guarded& each : kGuarded)
    for (const auto& who : kIdentities) {
      const bool may = is_allowed(each.access, who);
      const std::string title = std::string(each.name) + " as " + (who ? who->id : "nobody");
      const CallOptions options{.identity = who};
      const CallOptions timed{.identity = who, .deadline = Clock::now() + std::chrono::seconds(60)};
      const Value input = Value::object({{"model", "a"}});
      const std::string id = std::string("guarded.") + each.name, stream = std::string("streams.") + each.name,
                        hidden = std::string("hidden.") + each.name;
      attempt("call " + title, may, kAccessDenied, [&] { exchange.call(id, input, options); });
      attempt("call with a deadline " + title, may, kAccessDenied, [&] { exchange.call(id, input, timed); });
      attempt("start " + title, may, kAccessDenied, [&] { exchange.start(id, input, options).get(); });
      attempt("subscribe " + title, may, kAccessDenied, [&] { exchange.subscribe(stream, input, options).next(); });
      attempt("internal " + title, false, kNotFound, [&] { exchange.call(hidden, input, options); });
      attempt("internal, started " + title, false, kNotFound, [&] { exchange.start(hidden, input, options).get(); });
      attempt("through a deputy " + title, false, kAccessDenied, [&] {
        exchange.call("deputy.without_authority", Value::object({{"id", id}, {"input", input}}), options);
      });
      attempt("through a deputy that reaches nothing " + title, false, kNotFound, [&] {
        exchange.call("deputy.without_reach", Value::object({{"id", id}, {"input", input}}), options);
      });
      // A resource that cannot be told from the input.
      if (!each.access.resource_type.empty())
        for (const char* odd :
             {"{}", "3", "[]", R"({"model": ["a"]})", R"({"model": {"id": "a"}})", R"({"model": null})"})
          attempt("odd input " + title, false, kAccessDenied, [&] { exchange.call(id, Value::parse(odd), options); });
    }
  EXPECT_GE(refused, 200);
  EXPECT_GE(allowed, 20);
}

TEST(Access, ADeputyUsesItsOwnAuthority) {
  auto registry = std::make_shared<Registry>();
  registry->add({.space = "inner", .name = "read", .access = {.scopes = {"files"}}, .visibility = Visibility::internal},
                [](Context& call) { return Value(call.identity()->id); });
  registry->add({.space = "outer", .name = "read"}, {.run = [](Context& call) { return call.call("inner.read", {}); },
                                                     .authority = {.id = "outer", .scopes = {"files"}},
                                                     .reach = {"inner.read"}});
  Exchange exchange(registry);
  EXPECT_EQ(exchange.call("outer.read", {}).data, Value("outer")) << "its caller has no rights at all";
}

TEST(Access, TheOwnerMayEverything) {
  auto registry = std::make_shared<Registry>();
  for (const Guarded& each : kGuarded)
    if (each.access.function.empty())
      registry->add({.space = "guarded", .name = each.name, .access = each.access}, [](Context&) { return Value(); });
  Exchange exchange(registry);
  for (const auto& specification : registry->list())
    exchange.call(specification->id(), Value::object({{"model", "m"}}), {.identity = registry->owner()});
}

TEST(Registry, ListsAndDescribes) {
  Registry registry;
  Specification full{.space = "b",
                     .name = "full",
                     .version = "2.1.0",
                     .kind = Kind::mutation,
                     .title = "T",
                     .description = "D",
                     .tags = {"x"},
                     .input = Value::parse(R"({"type": "null"})"),
                     .output = Value::parse(R"({"type": "string"})"),
                     .errors = {{"E", "e", Value::parse(R"({"type": "integer"})"), 409}},
                     .access = {.scopes = {"s"},
                                .any_scopes = {"t"},
                                .resource_type = "m",
                                .resource_action = "r",
                                .resource_input = "i",
                                .function = "f"},
                     .metadata = Value::object({{"k", 1}})};
  registry.add(full);
  registry.add({.space = "a", .name = "z"});
  registry.add({.space = "a", .name = "hidden", .visibility = Visibility::internal});
  std::string ids;
  for (const auto& each : registry.list()) ids += each->id() + " ";
  EXPECT_EQ(ids, "a.z b.full ");
  EXPECT_EQ(registry.list(true).size(), 3u);
  EXPECT_FALSE(registry.find("a.hidden"));
  EXPECT_TRUE(registry.find("a.hidden", true));
  EXPECT_EQ(to_value(specification_from(to_value(full))), to_value(full));
  for (const char* wrong :
       {"3", "{}", R"({"namespace": "a", "name": "b", "type": "verb"})",
        R"({"namespace": "a", "name": "b", "type": "query", "more": 1})",
        R"({"namespace": "a", "name": "b", "type": "query", "tags": "x"})",
        R"({"namespace": "a", "name": "b", "type": "query", "errors": [{"code": "X", "httpStatus": 200}]})"})
    EXPECT_THROW(specification_from(Value::parse(wrong)), UsageError) << wrong;
}

TEST(Registry, RefusesWrongSpecifications) {
  Registry registry;
  registry.add({.space = "a", .name = "b"});
  EXPECT_THROW(registry.add({.space = "a", .name = "b"}), UsageError);
  for (const char* name : {"", "a.b", "1a", "a b", "ä", "a/b"})
    EXPECT_THROW(registry.add({.space = "a", .name = name}), UsageError) << name;
  EXPECT_THROW(registry.add({.space = "a", .name = "c", .input = Value::parse(R"({"type": "x"})")}),
               schema::SchemaError);
  EXPECT_THROW(registry.add({.space = "a", .name = "c", .output = Value(3)}), schema::SchemaError);
  EXPECT_THROW(registry.set_handler("a.c", {}), UsageError);
  registry.set_handler("a.b", {.run = [](Context&) { return Value(); }});
  EXPECT_THROW(registry.set_handler("a.b", {.run = [](Context&) { return Value(); }}), UsageError);
  registry.remove("a.b");
  EXPECT_FALSE(registry.find("a.b"));
}

}  // namespace
}  // namespace weft::operations::access_test
