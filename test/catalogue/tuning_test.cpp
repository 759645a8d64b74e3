// Fine-tuning as operations.
#include <gtest/gtest.h>

#include "base/temporary_folder.hpp"
#include "llm/byte_model.hpp"
#include "operations/code_of.hpp"
#include "weft/catalogue.hpp"
#include "weft/device.hpp"
#include "weft/llm.hpp"

namespace weft::operations::tuning_test {
namespace {

using test::code_of;

struct TuningOperations : testing::Test {
  TuningOperations() {
    set_default_device(kCpu);
    std::filesystem::create_directory(folder.path() / "out");
    test::put_byte_model(model);
    std::string lines, pairs;
    for (int i = 0; i < 24; ++i) {
      const std::string prompt = "{\"prompt\": \"" + std::to_string(i) + "?\", ";
      lines += prompt + "\"completion\": \" yes\"}\n";
      pairs += prompt + "\"chosen\": \" yes\", \"rejected\": \" no\"}\n";
    }
    folder.put("data.jsonl", lines);
    folder.put("pairs.jsonl", pairs);
  }
  Value::Object input(const char* data) const {
    return {{"model", model.path().string()},
            {"data", (folder.path() / data).string()},
            {"context", 32},
            {"batch", 2},
            {"steps", 4},
            {"rank", 2}};
  }
  std::vector<Value> events_of(Value::Object request, const char* out) {
    request.set("out", (folder.path() / "out" / out).string());
    request.set("log_every", 1);
    request.set("learning_rate", 0.01);
    Subscription run = exchange.subscribe("tuning.run", std::move(request), owner);
    std::vector<Value> events;
    while (const auto answer = run.next()) events.push_back(answer->data);
    return events;
  }

  test::TemporaryFolder folder, model;
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Catalogue catalogue{registry,
                      {.read_folders = {folder.path(), model.path()}, .write_folders = {folder.path() / "out"}}};
  Exchange exchange{registry};
  CallOptions owner{.identity = registry->owner()};
};

TEST_F(TuningOperations, ARunTellsItsStepsAndLeavesAnAdapter) {
  const std::vector<Value> events = events_of(input("data.jsonl"), "run");
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back()["step"].integer(), 4);
  EXPECT_LT(events.back()["loss"].number(), events[1]["loss"].number());
  EXPECT_NO_THROW(llm::load(model.path(), {.context = 32, .adapters = {{folder.path() / "out" / "run"}}}));
  const std::vector<Value> preferred = events_of(input("pairs.jsonl"), "preferred");
  EXPECT_GT(preferred.back()["margin"].number(), 0);
}

TEST_F(TuningOperations, NeedsAreToldAndPathsAndOptionsAreChecked) {
  Value::Object request = input("data.jsonl");
  const Value need = exchange.call("tuning.need", request, owner).data;
  EXPECT_EQ(need["steps"].integer(), 4);
  EXPECT_TRUE(need["fits"].boolean());
  EXPECT_GT(need["total"].integer(), need["weights"].integer());
  request.set("optimizer", "sgd");
  request.set("optimizer_options", Value::Object{{"momentum", 0.9}, {"nesterov", true}});
  EXPECT_LT(exchange.call("tuning.need", request, owner).data["total"].integer(), need["total"].integer());
  request.set("optimizer", "adamw");
  EXPECT_EQ(code_of([&] { exchange.call("tuning.need", request, owner); }), "USAGE_ERROR");  // it has no momentum
  request = input("data.jsonl");
  request.set("data", "/etc/hostname");
  EXPECT_EQ(code_of([&] { exchange.call("tuning.need", request, owner); }), "ACCESS_DENIED");
  request = input("data.jsonl");
  request.set("full", true);
  request.set("dora", true);
  EXPECT_EQ(code_of([&] { exchange.call("tuning.need", request, owner); }), "USAGE_ERROR");
}

}  // namespace
}  // namespace weft::operations::tuning_test
