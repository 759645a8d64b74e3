// DNA, splicing, mutation, populations, grafting.
#include <gtest/gtest.h>

#include <cmath>

#include "weft/error.hpp"
#include "weft/evolve.hpp"
#include "weft/grad.hpp"
#include "weft/grid/builders.hpp"
#include "weft/ops.hpp"
#include "weft/optim.hpp"

namespace weft::evolve::networks {
namespace {

using grid::Activation;
using grid::Description;
using grid::Layer;
using grid::LayerType;

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }
std::vector<float> all_parameters(const Network& network) {
  std::vector<float> all;
  for (const nn::NamedArray& array : network.state_dict()) {
    const auto* first = reinterpret_cast<const float*>(array.bytes.data());
    all.insert(all.end(), first, first + array.bytes.size() / sizeof(float));
  }
  return all;
}
std::unique_ptr<Network> network_of(const Description& d, std::uint64_t seed) {
  auto network = std::make_unique<Network>(d);
  network->initialize(seed);
  return network;
}
Description nested() {
  return Description::chain(
      {grid::dense_layer(3, 4),
       grid::mixture_layer(
           {grid::dense_layer(4, 4), grid::sequential_layer({grid::dense_layer(4, 2), grid::dense_layer(2, 4)})},
           grid::dense_layer(4, 2, Activation::linear)),
       grid::residual_layer(), grid::dense_layer(4, 2)});
}

// ---- DNA -----------------------------------------------------------------------------------------------------------------

TEST(Dna, SignaturesAreUnitVectorsOfWhatThePassSees) {
  auto network = network_of(nested(), 1);
  network->morph({0, 0, 0, 3}, DType::ternary);
  const std::vector<Signature> dna = extract_dna(*network);
  ASSERT_EQ(dna.size(), 4u);
  EXPECT_EQ(dna[0].direction.size(), 12u);
  EXPECT_EQ(dna[1].direction.size(), 16u + 8 + 8 + 8);
  EXPECT_EQ(dna[2].direction, std::vector<float>{1});
  const std::vector<float> w = values(network->layer(3).weights()[0]);
  double norm = 0;
  for (const float v : w) norm += static_cast<double>(v) * v;
  for (std::size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(dna[3].direction[i], w[i] / std::sqrt(norm), 1e-6);
  for (const Signature& s : dna) EXPECT_NEAR(similarity(s, s), 1, 1e-6);
}

TEST(Dna, SimilarityFollowsItsRules) {
  const Signature a{{}, LayerType::dense, DType::f32, {0.6f, 0.8f}}, b{{}, LayerType::dense, DType::f32, {0.8f, 0.6f}};
  EXPECT_NEAR(similarity(a, b), 0.96, 1e-6);
  Signature other = b;
  other.type = LayerType::rms_norm;
  EXPECT_EQ(similarity(a, other), 0);
  other = b;
  other.dtype = DType::i8;
  EXPECT_EQ(similarity(a, other), 0);
  other = b;
  other.direction.push_back(0);
  EXPECT_EQ(similarity(a, other), 0);
  const Signature zero{{}, LayerType::dense, DType::f32, {0, 0}};
  EXPECT_EQ(similarity(zero, zero), 1);
  EXPECT_EQ(similarity(a, zero), 0);
}

TEST(Dna, LayersThatMovedAreLogicShifts) {
  Description d(1, 1, 3, 1);
  for (Layer& layer : d.layers) layer = grid::dense_layer(4, 4);
  const auto a = network_of(d, 1);
  auto b = network_of(d, 2);
  nn::StateDict state = b->state_dict();
  state[2].bytes = a->state_dict()[0].bytes;  // the first layer of a is the last of b
  b->load_state_dict(state);
  const Comparison c = compare(extract_dna(*a), extract_dna(*b));
  ASSERT_EQ(c.shifts.size(), 1u);
  EXPECT_EQ(c.shifts[0].from, (Coordinate{0, 0, 0, 0}));
  EXPECT_EQ(c.shifts[0].to, (Coordinate{0, 0, 2, 0}));
  EXPECT_NEAR(c.shifts[0].similarity, 1, 1e-6);
  EXPECT_EQ(c.layers.size(), 3u);
  double total = 0;
  for (const auto& [at, alike] : c.layers) total += alike;
  EXPECT_NEAR(c.overall, total / 3, 1e-12);
  EXPECT_NEAR(compare(extract_dna(*a), extract_dna(*a)).overall, 1, 1e-6);
  EXPECT_EQ(compare({}, extract_dna(*a)).overall, 0);
}

// ---- Splicing ------------------------------------------------------------------------------------------------------------

TEST(Splice, TakesParametersOfBothParents) {
  const auto a = network_of(nested(), 1), b = network_of(nested(), 2);
  const std::vector<float> wa = all_parameters(*a), wb = all_parameters(*b);
  const std::vector<float> blend = all_parameters(*splice(*a, *b, {.blend_alpha = 0.25}));
  for (std::size_t i = 0; i < wa.size(); ++i) EXPECT_NEAR(blend[i], 0.75 * wa[i] + 0.25 * wb[i], 1e-6);

  const std::vector<float> uniform = all_parameters(*splice(*a, *b, {.mode = SpliceMode::uniform, .seed = 3}));
  std::size_t from_a = 0;
  for (std::size_t i = 0; i < wa.size(); ++i) {
    EXPECT_TRUE(uniform[i] == wa[i] || uniform[i] == wb[i]);
    from_a += uniform[i] == wa[i];
  }
  EXPECT_GT(from_a, wa.size() / 4);
  EXPECT_LT(from_a, 3 * wa.size() / 4);
  EXPECT_EQ(uniform, all_parameters(*splice(*a, *b, {.mode = SpliceMode::uniform, .seed = 3})));
  EXPECT_NE(uniform, all_parameters(*splice(*a, *b, {.mode = SpliceMode::uniform, .seed = 4})));
  EXPECT_EQ(wa, all_parameters(*splice(*a, *b, {.mode = SpliceMode::uniform, .fitness_a = 1, .fitness_b = 0})));

  // Each layer on its own: the first half of the first layer's twelve from a.
  const std::vector<float> point = all_parameters(*splice(*a, *b, {.mode = SpliceMode::point}));
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(point[i], i < 6 ? wa[i] : wb[i]);
  EXPECT_EQ(all_parameters(*a), wa);
  EXPECT_EQ(all_parameters(*b), wb);
}

TEST(Splice, BlendsByFitnessAndSimilarity) {
  const auto a = network_of(grid::mlp({3, 2}), 1), b = network_of(grid::mlp({3, 2}), 2);
  const double alike = compare(extract_dna(*a), extract_dna(*b)).overall, t = 0.75 * (0.5 + 0.5 * alike);
  const std::vector<float> wa = all_parameters(*a), wb = all_parameters(*b),
                           child = all_parameters(*splice(*a, *b, {.fitness_a = 1, .fitness_b = 3}));
  for (std::size_t i = 0; i < wa.size(); ++i) EXPECT_NEAR(child[i], (1 - t) * wa[i] + t * wb[i], 1e-6);
}

TEST(Splice, ReportsWhatWasAlikeAndLeavesOtherLayersAlone) {
  const auto a = network_of(grid::mlp({3, 4, 2}), 1), b = network_of(grid::mlp({3, 4, 5}), 2);
  const Splice result = splice_with_report(*a, *b);
  EXPECT_EQ(result.spliced, 1u);  // the last layers differ in size
  EXPECT_EQ(result.similarities.size(), 2u);
  EXPECT_EQ(result.similarities.at({0, 0, 0, 1}), 0);
  EXPECT_EQ(result.similar, result.similarities.at({0, 0, 0, 0}) > 0 ? 1u : 0u);
  EXPECT_EQ(values(result.child->layer(1).weights()[0]), values(a->layer(1).weights()[0]));
  EXPECT_EQ(result.dna_child.size(), 2u);
  EXPECT_THROW(splice(*a, *b, {.split_ratio = 2}), UsageError);
  EXPECT_THROW(splice(*a, *b, {.fitness_a = NAN, .fitness_b = 1}), UsageError);
  EXPECT_THROW(splice(*a, *b, {.fitness_a = 1}), UsageError);
}

// ---- Mutation ------------------------------------------------------------------------------------------------------------

MutationOptions only(double MutationOptions::*chance, std::uint64_t seed) {
  MutationOptions options{
      .weights = 0, .activation = 0, .node = 0, .toggle = 0, .add_link = 0, .drop_link = 0, .width = 4, .seed = seed};
  options.*chance = 1;
  return options;
}

// Trap 17.
TEST(Mutation, IsReproducibleAndLeavesTheParentAlone) {
  const auto parent = network_of(nested(), 1);
  const Description description = parent->description();
  const std::vector<float> weights = all_parameters(*parent);
  const MutationOptions options{
      .activation = 0.5, .node = 0.5, .toggle = 0.3, .add_link = 1, .drop_link = 0.5, .width = 4, .seed = 9};
  const auto first = mutate(*parent, options), second = mutate(*parent, options);
  EXPECT_EQ(first->description(), second->description());
  EXPECT_EQ(all_parameters(*first), all_parameters(*second));
  MutationOptions other = options;
  other.seed = 10;
  EXPECT_NE(all_parameters(*first), all_parameters(*mutate(*parent, other)));
  EXPECT_EQ(parent->description(), description);
  EXPECT_EQ(all_parameters(*parent), weights);

  // Training the child does not reach the parent, nested layers and gates included.
  const auto child = mutate(*parent, only(&MutationOptions::weights, 1));
  optim::SGD optimizer(*child, {.learning_rate = 0.1});
  optimizer.step(grad(sum(square((*child)(ones({2, 3})))), optimizer.parameters()));
  eval_pending();
  EXPECT_EQ(all_parameters(*parent), weights);
}

TEST(Mutation, WeightsMoveByTheAmount) {
  const auto parent = network_of(nested(), 1);
  const std::vector<float> before = all_parameters(*parent),
                           after = all_parameters(*mutate(*parent, only(&MutationOptions::weights, 2)));
  double most = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NE(before[i], after[i]);
    most = std::max(most, std::fabs(static_cast<double>(before[i]) - after[i]));
  }
  EXPECT_LE(most, 0.0500001);
  EXPECT_GT(most, 0.03);
}

TEST(Mutation, NodesTakeOtherTypesOfTheSameWidths) {
  const auto parent = network_of(Description::chain({grid::dense_layer(8, 8), grid::dense_layer(8, 3)}), 1);
  std::set<LayerType> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto child = mutate(*parent, only(&MutationOptions::node, seed));
    seen.insert(child->description().layers[0].type);
    EXPECT_NE(child->description().layers[0].type, LayerType::dense);
    EXPECT_TRUE(grid::can_map(child->description().layers[1].type, 8, 3));
    const Tensor y = (*child)(rand({5, 8}, -1, 1));
    EXPECT_EQ(y.shape(), (Shape{5, 3}));
    for (const float v : values(y)) EXPECT_TRUE(std::isfinite(v));
  }
  EXPECT_EQ(seen.size(), 15u);  // all but dense, embedding, parallel and sequential
}

TEST(Mutation, TogglesOnlyWhereWidthsStay) {
  const auto parent = network_of(Description::chain({grid::dense_layer(8, 8), grid::dense_layer(8, 3)}), 1);
  const auto child = mutate(*parent, only(&MutationOptions::toggle, 1));
  EXPECT_TRUE(child->description().layers[0].disabled);
  EXPECT_FALSE(child->description().layers[1].disabled);
  EXPECT_FALSE(mutate(*child, only(&MutationOptions::toggle, 1))->description().layers[0].disabled);
}

// Trap: a link was added to layers that do not run it.
TEST(Mutation, AddedLinksHaveAnEffectAndCanBeDropped) {
  const auto parent = network_of(grid::mlp({4, 4, 4}), 1);
  const Tensor x = rand({3, 4}, -1, 1).eval();
  const auto linked = mutate(*parent, only(&MutationOptions::add_link, 2));
  EXPECT_NE(values((*linked)(x)), values((*parent)(x)));
  EXPECT_EQ(linked->parameter_count(), parent->parameter_count());
  const auto more = mutate(*linked, only(&MutationOptions::add_link, 5));
  EXPECT_TRUE(grid::problems_of(more->description()).empty());
  const auto dropped = mutate(*linked, only(&MutationOptions::drop_link, 3));
  EXPECT_EQ(values((*dropped)(x)), values((*parent)(x)));
  EXPECT_EQ(values((*mutate(*parent, only(&MutationOptions::drop_link, 3)))(x)), values((*parent)(x)));
}

TEST(Mutation, ManyGenerationsStayValid) {
  auto network = network_of(nested(), 1);
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    network = mutate(
        *network,
        {.activation = 0.3, .node = 0.3, .toggle = 0.2, .add_link = 0.5, .drop_link = 0.3, .width = 4, .seed = seed});
    ASSERT_TRUE(grid::problems_of(network->description()).empty()) << seed;
    ASSERT_EQ((*network)(ones({2, 3})).shape(), (Shape{2, 2})) << seed;
  }
}

TEST(Mutation, RefusesOptionsOutOfRange) {
  const auto parent = network_of(grid::mlp({2, 2}), 1);
  EXPECT_THROW(mutate(*parent, {.weights = 1.5}), UsageError);
  EXPECT_THROW(mutate(*parent, {.amount = -1}), UsageError);
  EXPECT_THROW(mutate(*parent, {.width = -1}), UsageError);
}

// ---- Populations ---------------------------------------------------------------------------------------------------------

double fitness_of(const Network& network, const Tensor& x, const Tensor& y) {
  return -mean(square(network(x) - y)).item<float>();
}

TEST(Population, EvolvesReproducibly) {
  manual_seed(6);
  const Tensor x = rand({32, 2}, -1, 1).eval(), y = (narrow(x, 1, 0, 1) * 0.8 - narrow(x, 1, 1, 1) * 0.3).eval();
  const auto ancestor = network_of(grid::mlp({2, 4, 1}, Activation::tanh), 1);
  const auto run = [&] {
    Population population(*ancestor, {.size = 16, .mutation = {.amount = 0.2}, .seed = 3});
    EXPECT_THROW((void)population.best_fitness(), UsageError);
    for (int i = 0; i < 30; ++i) population.evolve([&](const Network& n) { return fitness_of(n, x, y); });
    EXPECT_EQ(population.members().size(), 16u);
    EXPECT_EQ(fitness_of(population.best(), x, y), population.best_fitness());
    // The best quarter stays, so the best never gets worse.
    for (std::size_t i = 1; i < population.generations().size(); ++i)
      EXPECT_GE(population.generations()[i].best, population.generations()[i - 1].best);
    EXPECT_GT(population.best_fitness(), 0.3 * population.generations()[0].best);  // fitnesses are negative
    EXPECT_EQ(to_string(population.generations()[0]).find("generation 1: best -"), 0u);
    return all_parameters(population.best());
  };
  EXPECT_EQ(run(), run());
}

TEST(Population, FitnessesThatAreNotNumbersAreTheWorst) {
  const auto ancestor = network_of(grid::mlp({2, 1}), 1);
  Population population(*ancestor, {.size = 3});
  int calls = 0;
  const Generation g = population.evolve([&](const Network&) { return ++calls == 2 ? 1.0 : NAN; });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(g.best, 1);
  EXPECT_TRUE(std::isinf(g.worst));
  EXPECT_THROW(Population(*ancestor, {.size = 0}), UsageError);
}

// ---- Grafting ------------------------------------------------------------------------------------------------------------

TEST(Grafting, JoinsFirstLayersWithTheirParameters) {
  const auto a = network_of(grid::mlp({3, 2}), 1),
             b = network_of(
                 Description::chain({grid::parallel_layer({grid::dense_layer(3, 2), grid::dense_layer(3, 2)})}), 2);
  const Network* const both[] = {a.get(), b.get()};
  const Tensor x = rand({4, 3}, -1, 1).eval();
  const auto grafted = graft(both);
  EXPECT_EQ(values((*grafted)(x)), values(concat({(*a)(x), (*b)(x)}, -1)));
  const auto gated = graft(both, grid::Combine::filter, grid::dense_layer(3, 3, Activation::linear));
  EXPECT_EQ((*gated)(x).shape(), (Shape{4, 2}));
  EXPECT_THROW(graft({}), UsageError);
  EXPECT_THROW(graft(both, grid::Combine::filter), UsageError);
  EXPECT_THROW(graft(both, grid::Combine::add, grid::dense_layer(3, 3)), UsageError);
}

// Trap: the disabled identity was run, and had no weights.
TEST(Grafting, AResidualGraftAddsTheInput) {
  const auto network = network_of(Description::chain({grid::dense_layer(3, 3), grid::dense_layer(3, 2)}), 1);
  const auto grafted = residual_graft(*network, {0, 0, 0, 0});
  const Tensor x = rand({4, 3}, -1, 1).eval();
  const Tensor inner = x + relu(linear(x, network->layer(0).weights()[0]));
  const std::vector<float> got = values((*grafted)(x)), wanted = values(linear(inner, network->layer(1).weights()[0]));
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], std::max(wanted[i], 0.0f), 1e-5);
  EXPECT_THROW(residual_graft(*network, {0, 0, 0, 5}), UsageError);
}

}  // namespace
}  // namespace weft::evolve::networks
