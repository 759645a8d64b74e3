#include <gtest/gtest.h>

#include "weft/grad.hpp"
#include "weft/grid.hpp"
#include "weft/ops.hpp"

namespace weft::grid::observers {
namespace {

struct Recorder : Observer {
  void on_forward(const Event& event) override { forward.push_back(event); }
  void on_backward(const Event& event) override { backward.push_back(event); }
  std::vector<Event> forward, backward;
};

Network& network() {
  static Network made(
      Description::chain({dense_layer(3, 4), sequential_layer({dense_layer(4, 4, Activation::tanh), residual_layer()}),
                          dense_layer(4, 2)}));
  return made;
}
std::vector<std::string> paths(const std::vector<Event>& events) {
  std::vector<std::string> result;
  for (const Event& e : events) result.push_back(e.path);
  return result;
}

// Trap 22.
TEST(GridObserve, ObserversGetOneEventForEachLayerAndPass) {
  Recorder a, b;
  Observer* const both[] = {&a, &b};
  const Pass pass = network().pass(rand({5, 3}, -1, 1));
  observe(pass, both, {.step = 7, .model = "m"});
  const std::vector<std::string> order = {"0,0,0,0", "0,0,0,1/0", "0,0,0,1/1", "0,0,0,1", "0,0,0,2"};
  EXPECT_EQ(paths(a.forward), order);
  EXPECT_EQ(paths(b.forward), order);
  EXPECT_TRUE(a.backward.empty());
  observe_backward(pass, sum(pass.output), both);
  EXPECT_EQ(paths(a.backward), (std::vector<std::string>(order.rbegin(), order.rend())));
  EXPECT_EQ(a.forward.size(), 5u);
  EXPECT_EQ(a.forward[0].step, 7);
  EXPECT_EQ(to_value(a.forward[1])["type"], Value("dense"));
  EXPECT_EQ(to_value(a.forward[1])["model"], Value("m"));
  Observer* const none[] = {nullptr};
  EXPECT_THROW(observe(pass, none), UsageError);
}

TEST(GridObserve, StatisticsAreThoseOfTheResult) {
  Recorder recorder;
  Observer* const list[] = {&recorder};
  const Pass pass = network().pass(rand({5, 3}, -1, 1).eval());
  observe(pass, list);
  observe_backward(pass, sum(pass.output * 2.0), list);
  const std::vector<float> values = pass.layers[0].after.to_vector<float>();
  double mean = 0;
  Extent active = 0;
  for (const float v : values) {
    mean += v / 20.0;
    active += std::abs(v) > 1e-6f;
  }
  const Statistics& s = recorder.forward[0].statistics;
  EXPECT_NEAR(s.mean, mean, 1e-6);
  EXPECT_EQ(s.max, *std::max_element(values.begin(), values.end()));
  EXPECT_EQ(s.min, 0);
  EXPECT_EQ(s.active, active);
  EXPECT_EQ(s.total, 20);
  EXPECT_EQ(recorder.backward[0].path, "0,0,0,2");
  EXPECT_EQ(recorder.backward[0].statistics.mean, 2);
}

TEST(GridObserve, WindowMeansForgetOldPasses) {
  WindowMeans means(2);
  for (const double value : {9.0, 1.0, 3.0})
    means.on_forward({"0,0,0,0", LayerType::dense, {value, value, -value, 4, 8}, 0, ""});
  EXPECT_EQ(means.forward().at("0,0,0,0").mean, 2);
  EXPECT_EQ(means.forward().at("0,0,0,0").min, -2);
  EXPECT_TRUE(means.backward().empty());
  EXPECT_THROW(WindowMeans(0), UsageError);
}

TEST(GridObserve, EveryEnabledLayerIsTimed) {
  Network made(network().description());
  made.set_disabled({0, 0, 0, 1}, true);
  const std::vector<LayerTime> times = time_layers(made, rand({5, 3}), 3);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[1].path, "0,0,0,2");
  for (const LayerTime& t : times) EXPECT_GT(t.seconds, 0);
  EXPECT_THROW(time_layers(made, rand({5, 3}), 0), UsageError);
}

}  // namespace
}  // namespace weft::grid::observers
