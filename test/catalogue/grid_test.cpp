// Volumetric networks as operations: the same as in C++, limits, rights, and evolution.
#include <gtest/gtest.h>

#include <fstream>

#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "operations/code_of.hpp"
#include "weft/catalogue.hpp"
#include "weft/evolve.hpp"
#include "weft/grid.hpp"
#include "weft/nn/losses.hpp"
#include "weft/weft.hpp"

namespace weft::operations::grid_test {
namespace {

using test::code_of;

Value members(std::initializer_list<ValueObject::Member> list) { return Value::object(list); }

struct GridOperations : testing::Test {
  GridOperations() { set_default_device(parse_device("cpu")); }
  test::TemporaryFolder folder;
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Catalogue catalogue{registry,
                      {.read_folders = {folder.path()},
                       .write_folders = {folder.path()},
                       .tensor_bytes_max = 1 << 16,
                       .networks_max = 4,
                       .network_bytes_max = 1 << 16}};
  Exchange exchange{registry};
  CallOptions owner{.identity = registry->owner()};

  Value call(std::string_view id, Value input) { return exchange.call(id, std::move(input), owner).data; }
  std::string code(std::string_view id, Value input) {
    return code_of([&] { call(id, std::move(input)); });
  }
  Value create(const char* name, const char* builder) {
    return call("grid.create", members({{"network", name}, {"builder", Value::parse(builder)}}));
  }
  std::vector<float> forward(const char* name, const Tensor& x) {
    return call("grid.forward", members({{"network", name}, {"x", x}}))["y"].tensor().to_vector<float>();
  }
  std::string path(const char* name) const { return (folder.path() / name).string(); }
};
constexpr const char* kMlp = R"({"kind": "mlp", "widths": [2, 8, 1], "activation": "tanh"})";

TEST_F(GridOperations, GiveTheBitsOfTheNetworkInCpp) {
  const Value made = create("a", kMlp);
  EXPECT_EQ(made["parameters"], Value(24));
  EXPECT_EQ(made["layers"], Value(2));
  grid::Network network(grid::mlp({2, 8, 1}, grid::Activation::tanh));
  network.initialize(1);
  const Tensor x = rand({16, 2}, -1, 1).eval(), y = amax(x, {1}, {.keepdims = true}).eval();
  EXPECT_EQ(forward("a", x), network(x).to_vector<float>());

  // The same description as data, and the same steps of training.
  const Value told = call("grid.describe", members({{"network", "a"}}));
  EXPECT_EQ(grid::from_value(told["description"]), network.description());
  call("grid.create", members({{"network", "b"}, {"description", told["description"]}}));
  EXPECT_EQ(forward("b", x), network(x).to_vector<float>());
  optim::Adam adam(network, {.learning_rate = 0.01});
  for (int i = 0; i < 5; ++i) {
    const Tensor loss = nn::mse(network(x), y);
    const auto before = static_cast<double>(loss.item<float>());
    adam.step(grad(loss, adam.parameters()));
    const Value answer =
        call("grid.train_step", members({{"network", "a"}, {"x", x}, {"y", y}, {"learning_rate", 0.01}}));
    EXPECT_NEAR(answer["loss"].number(), before, 1e-6 * before) << i;
  }
  const auto got = forward("a", x), wanted = network(x).to_vector<float>();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5);
  EXPECT_EQ(forward("a", x), forward("a", x));
  EXPECT_EQ(call("grid.list", {})["networks"], Value::array({"a", "b"}));
  call("grid.remove", members({{"network", "a"}}));
  EXPECT_EQ(code("grid.describe", members({{"network", "a"}})), "NETWORK_NOT_FOUND");
}

TEST_F(GridOperations, TrainReportsEveryEpochAndEndsWithItsCaller) {
  create("a", R"({"kind": "mlp", "widths": [2, 16, 1]})");
  const Tensor x = rand({64, 2}, -1, 1).eval(), y = amax(x, {1}, {.keepdims = true}).eval();
  Subscription reports = exchange.subscribe(
      "grid.train",
      members({{"network", "a"}, {"x", x}, {"y", y}, {"epochs", 20}, {"batch", 16}, {"learning_rate", 0.02}}), owner);
  std::vector<double> losses;
  while (const auto answer = reports.next()) losses.push_back(answer->data["loss"].number());
  ASSERT_EQ(losses.size(), 20u);
  EXPECT_LT(losses.back(), 0.2 * losses.front());

  Subscription endless =
      exchange.subscribe("grid.train", members({{"network", "a"}, {"x", x}, {"y", y}, {"epochs", 1000000}}), owner);
  ASSERT_TRUE(endless.next());
  endless.abort();
  // The network is free again, and what was learnt stays.
  EXPECT_LT(nn::mse(call("grid.forward", members({{"network", "a"}, {"x", x}}))["y"].tensor(), y).item<float>(),
            losses.front());
}

TEST_F(GridOperations, ResetOptimizerBeginsAnew) {
  const Tensor x = ones({4, 2}), y = zeros({4, 1});
  const Value step = members({{"network", "a"}, {"x", x}, {"y", y}, {"learning_rate", 0.1}});
  create("a", kMlp);
  call("grid.train_step", step);
  call("grid.save", members({{"network", "a"}, {"path", path("a.safetensors")}}));
  call("grid.reset_optimizer", members({{"network", "a"}}));
  call("grid.train_step", step);
  const auto reset = forward("a", x);
  // A network with these parameters that was never trained.
  call("grid.load", members({{"network", "b"}, {"path", path("a.safetensors")}}));
  Value other = step;
  other.members().set("network", "b");
  call("grid.train_step", other);
  const auto fresh = forward("b", x);
  for (std::size_t i = 0; i < fresh.size(); ++i) EXPECT_NEAR(reset[i], fresh[i], 1e-6);
}

TEST_F(GridOperations, ParametersAreReadAndWrittenByName) {
  create("a", kMlp);
  call("grid.create", members({{"network", "b"}, {"builder", Value::parse(kMlp)}, {"seed", 2}}));
  const Tensor x = rand({4, 2}, -1, 1).eval();
  const Value all = call("grid.read_parameters", members({{"network", "a"}}))["parameters"];
  EXPECT_EQ(all.members().size(), 2u);
  EXPECT_NE(forward("a", x), forward("b", x));
  call("grid.write_parameters", members({{"network", "b"}, {"parameters", all}}));
  EXPECT_EQ(forward("a", x), forward("b", x));
  const Value one =
      call("grid.read_parameters", members({{"network", "a"}, {"names", Value::array({"z0y0x0l1.weight"})}}));
  EXPECT_EQ(one["parameters"].members().size(), 1u);
  EXPECT_EQ(code("grid.read_parameters", members({{"network", "a"}, {"names", Value::array({"x"})}})), "USAGE_ERROR");
  const auto before = forward("b", x);
  EXPECT_EQ(
      code("grid.write_parameters",
           members({{"network", "b"},
                    {"parameters", members({{"z0y0x0l0.weight", zeros({8, 2})}, {"z0y0x0l1.weight", zeros({8})}})}})),
      "USAGE_ERROR");
  EXPECT_EQ(forward("b", x), before) << "none was written";
}

TEST_F(GridOperations, CheckpointsGoRoundInEveryType) {
  create("a", R"({"kind": "random", "width": 8, "layers_per_cell": 4, "seed": 3})");
  const Tensor x = rand({3, 8}, -1, 1).eval();
  for (const char* type : {"f32", "int8", "binary"}) {
    call("grid.morph", members({{"network", "a"}, {"dtype", type}}));
    call("grid.save", members({{"network", "a"}, {"path", path("n.safetensors")}}));
    call("grid.load", members({{"network", "b"}, {"path", path("n.safetensors")}}));
    EXPECT_EQ(forward("a", x), forward("b", x)) << type;
    call("grid.remove", members({{"network", "b"}}));
  }
  EXPECT_EQ(code("grid.morph", members({{"network", "a"}, {"dtype", "int3"}})), "USAGE_ERROR");
  std::ofstream(folder.path() / "broken.safetensors") << "not a file of weights";
  EXPECT_EQ(code("grid.load", members({{"network", "c"}, {"path", path("broken.safetensors")}})), "FILE_ERROR");
}

TEST_F(GridOperations, SystolicTicksGiveThePass) {
  create("a", kMlp);
  const Tensor x = rand({4, 2}, -1, 1).eval();
  const auto ticked = [&](int ticks) {
    return call("grid.forward", members({{"network", "a"}, {"x", x}, {"ticks", ticks}}))["y"].tensor();
  };
  EXPECT_EQ(ticked(2).to_vector<float>(), forward("a", x));
  EXPECT_EQ(code_of([&] { ticked(1); }), "USAGE_ERROR");
}

TEST_F(GridOperations, EvolutionIsThatOfCpp) {
  create("a", kMlp);
  call("grid.create", members({{"network", "b"}, {"builder", Value::parse(kMlp)}, {"seed", 2}}));
  grid::Network a(grid::mlp({2, 8, 1}, grid::Activation::tanh)), b(grid::mlp({2, 8, 1}, grid::Activation::tanh));
  a.initialize(1);
  b.initialize(2);
  const auto dna = evolve::extract_dna(a);
  const Value told = call("grid.dna", members({{"network", "a"}}))["layers"];
  ASSERT_EQ(told.elements().size(), dna.size());
  EXPECT_EQ(told[std::size_t{1}]["at"], Value("0,0,0,1"));
  EXPECT_EQ(told[std::size_t{1}]["direction"].tensor().to_vector<float>(), dna[1].direction);
  EXPECT_NEAR(call("grid.compare", members({{"a", "a"}, {"b", "a"}}))["overall"].number(), 1, 1e-6);
  EXPECT_EQ(call("grid.compare", members({{"a", "a"}, {"b", "b"}}))["overall"].number(),
            evolve::compare(dna, evolve::extract_dna(b)).overall);

  const Tensor x = rand({4, 2}, -1, 1).eval();
  const Value report = call("grid.splice", members({{"network", "child"},
                                                    {"a", "a"},
                                                    {"b", "b"},
                                                    {"options", members({{"mode", "point"}, {"split_ratio", 0.25}})}}));
  EXPECT_EQ(report["spliced"], Value(2));
  const auto child = evolve::splice(a, b, {.mode = evolve::SpliceMode::point, .split_ratio = 0.25});
  EXPECT_EQ(forward("child", x), (*child)(x).to_vector<float>());
  call("grid.remove", members({{"network", "child"}}));
  call("grid.mutate",
       members({{"network", "child"}, {"ancestor", "a"}, {"options", members({{"amount", 0.5}, {"seed", 7}})}}));
  EXPECT_EQ(forward("child", x), (*evolve::mutate(a, {.amount = 0.5, .seed = 7}))(x).to_vector<float>());
  EXPECT_EQ(code("grid.mutate", members({{"network", "m"}, {"ancestor", "a"}, {"options", members({{"node", 2}})}})),
            "USAGE_ERROR");
}

TEST_F(GridOperations, EvolveKeepsTheBest) {
  create("a", kMlp);
  const Tensor x = rand({32, 2}, -1, 1).eval(), y = (narrow(x, 1, 0, 1) - narrow(x, 1, 1, 1)).eval();
  Subscription generations = exchange.subscribe("grid.evolve",
                                                members({{"network", "best"},
                                                         {"ancestor", "a"},
                                                         {"x", x},
                                                         {"y", y},
                                                         {"generations", 6},
                                                         {"size", 8},
                                                         {"mutation", members({{"amount", 0.3}, {"node", 0}})}}),
                                                owner);
  std::vector<double> best;
  while (const auto answer = generations.next()) best.push_back(answer->data["best"].number());
  ASSERT_EQ(best.size(), 6u);
  EXPECT_GT(best.back(), best.front());
  const Tensor out = call("grid.forward", members({{"network", "best"}, {"x", x}}))["y"].tensor();
  EXPECT_NEAR(nn::mse(out, y).item<float>(), -best.back(), 1e-5);
}

TEST_F(GridOperations, RefuseWhatIsWrongBeforeAnythingLarge) {
  EXPECT_EQ(code("grid.create", members({{"network", "a"}})), kValidationError);
  EXPECT_EQ(code("grid.create", members({{"network", "a/b"}, {"builder", Value::parse(kMlp)}})), kValidationError);
  EXPECT_EQ(code("grid.create", members({{"network", "a"}, {"builder", Value::parse(R"({"kind": "net"})")}})),
            kValidationError);
  for (const char* wrong :
       {R"({"kind": "mlp", "width": [1, 2]})", R"({"kind": "mlp", "widths": [1]})",
        R"({"kind": "mlp", "widths": [0, 1]})", R"({"kind": "mlp", "widths": "1"})",
        R"({"kind": "cnn", "height": 9223372036854775807})", R"({"kind": "transformer", "heads": 3})",
        R"({"kind": "random", "width": -1})", R"({"kind": "random", "depth": 1000000})",
        R"({"kind": "mlp", "widths": [2, 1], "activation": "sine"})"})
    EXPECT_EQ(code("grid.create", members({{"network", "a"}, {"builder", Value::parse(wrong)}})), "USAGE_ERROR")
        << wrong;
  const char* const large = R"({"kind": "mlp", "widths": [1024, 1024]})";
  EXPECT_EQ(code("grid.create", members({{"network", "a"}, {"builder", Value::parse(large)}})), "NETWORK_TOO_LARGE");
  EXPECT_EQ(test::message_of<OperationError>([&] {
              call("grid.create",
                   members({{"network", "a"},
                            {"description", Value::parse(R"({"layers": [{"type": "dense", "inputs": 2}]})")}}));
            }).find("/layers/0/outputs") != std::string::npos,
            true);
  create("a", kMlp);
  EXPECT_EQ(code("grid.create", members({{"network", "a"}, {"builder", Value::parse(kMlp)}})), "NETWORK_EXISTS");
  for (const char* name : {"b", "c", "d"}) create(name, kMlp);
  EXPECT_EQ(code("grid.create", members({{"network", "e"}, {"builder", Value::parse(kMlp)}})), "NETWORK_LIMIT");
  EXPECT_EQ(code("grid.forward", members({{"network", "a"}, {"x", zeros({4, 3})}})), "SHAPE_ERROR");
  EXPECT_EQ(code("grid.forward", members({{"network", "a"}, {"x", zeros({20000, 2})}})), "TENSOR_TOO_LARGE");
  EXPECT_EQ(code("grid.train_step", members({{"network", "a"}, {"x", zeros({4, 2})}, {"y", zeros({3, 1})}})),
            "SHAPE_ERROR");
}

TEST_F(GridOperations, RightsAreThoseOfTheResource) {
  create("mine", kMlp);
  create("other", kMlp);
  call("grid.save", members({{"network", "mine"}, {"path", path("mine.safetensors")}}));
  const std::string file = path("mine.safetensors");
  const Identity user{.id = "u",
                      .scopes = {"grid:run", "grid:create", "grid:train", "files:read", "files:write"},
                      .resources = {{"network:mine", {"run", "read", "create"}}, {"network:new", {"create"}}}};
  const auto as_user = [&](std::string_view id, Value input) {
    return code_of([&] { exchange.call(id, std::move(input), {.identity = user}); });
  };
  const Tensor x = zeros({1, 2}), y = zeros({1, 1});
  EXPECT_EQ(as_user("grid.forward", members({{"network", "mine"}, {"x", x}})), "none");
  EXPECT_EQ(as_user("grid.forward", members({{"network", "other"}, {"x", x}})), kAccessDenied);
  EXPECT_EQ(as_user("grid.train_step", members({{"network", "mine"}, {"x", x}, {"y", y}})), kAccessDenied);
  EXPECT_EQ(as_user("grid.compare", members({{"a", "mine"}, {"b", "other"}})), kAccessDenied);
  EXPECT_EQ(as_user("grid.splice", members({{"network", "new"}, {"a", "mine"}, {"b", "other"}})), kAccessDenied);
  EXPECT_EQ(as_user("grid.mutate", members({{"network", "new"}, {"ancestor", "other"}})), kAccessDenied);
  EXPECT_EQ(as_user("grid.create", members({{"network", "x"}, {"builder", Value::parse(kMlp)}})), kAccessDenied);
  // Scopes for files do not suffice: the file itself is a resource.
  EXPECT_EQ(as_user("grid.load", members({{"network", "new"}, {"path", file}})), kAccessDenied);
  EXPECT_EQ(as_user("grid.save", members({{"network", "mine"}, {"path", file}})), kAccessDenied);
  EXPECT_EQ(code("grid.load", members({{"network", "new"}, {"path", "/etc/passwd"}})), kAccessDenied)
      << "outside of the folders, even for the owner";
  Identity reader = user;
  reader.resources["weights:" + file] = {"read"};
  EXPECT_EQ(code_of([&] {
              exchange.call("grid.load", members({{"network", "new"}, {"path", file}}), {.identity = reader});
            }),
            "none");
  EXPECT_EQ(exchange.call("grid.list", {}, {.identity = user}).data["networks"], Value::array({"mine"}));
  EXPECT_EQ(code_of([&] { exchange.call("grid.forward", members({{"network", "mine"}, {"x", x}})); }), kAccessDenied);
}

}  // namespace
}  // namespace weft::operations::grid_test
