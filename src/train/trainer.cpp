#include "weft/train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/team.hpp"
#include "train/learner.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::train {
namespace {

/// The batches of step `step`, [rows, context + 1] each. Of every batch a member takes its share of the rows.
std::vector<Tensor> batches_of(const RunConfig& config, const TextData& data, std::int64_t step, int rank,
                               int members) {
  const Extent length = config.model.context + 1, rows = config.batch / members;
  const std::vector<Token> drawn = draw_batch(data.training(), config.seed, static_cast<std::uint64_t>(step),
                                              config.accumulate * config.batch, length);
  std::vector<Tensor> batches;
  for (Extent part = 0; part < config.accumulate; ++part)
    batches.push_back(
        tensor_from_bytes(drawn.data() + (part * config.batch + rank * rows) * length, {rows, length}, DType::i32));
  return batches;
}

/// What the first device tells the others before a step.
struct Command {
  std::int64_t step;
  double learning_rate;
};

std::span<std::byte> bytes_of(Command& command) { return std::as_writable_bytes(std::span(&command, 1)); }

}  // namespace

/// The devices behind the first one. Each makes every step that it is told of, until the Trainer is destroyed.
struct Trainer::Others {
  Others(std::shared_ptr<parallel::Group> group, std::span<const Device> devices, const RunConfig& config,
         const TextData& data, Checkpoint start)
      : group(group),
        start(std::move(start)),
        team(std::move(group), devices, 1, [this, &config, &data](int rank) { work(rank, config, data); }) {}

  void work(int rank, const RunConfig& config, const TextData& data) {
    const parallel::Member member(group, rank);
    Learner learner(config, &start, &member);
    for (Command command{};;) {
      group->broadcast(rank, bytes_of(command));
      learner.step(command.learning_rate, batches_of(config, data, command.step, rank, group->size()));
    }
  }

  const std::shared_ptr<parallel::Group> group;
  const Checkpoint start;
  parallel::Team team;
};

Trainer::Trainer(const RunConfig& config, const TextData& data, std::span<const Device> devices)
    : Trainer(config, data, nullptr, devices) {}

Trainer::Trainer(const RunConfig& config, const TextData& data, const Checkpoint& checkpoint,
                 std::span<const Device> devices)
    : Trainer(config, data, &checkpoint, devices) {}

Trainer::Trainer(const RunConfig& config, const TextData& data, const Checkpoint* checkpoint,
                 std::span<const Device> devices)
    : config_(config), data_(data), members_(std::max(1, static_cast<int>(devices.size()))) {
  if (config.batch % members_ != 0)
    throw UsageError(fmt::format("a batch of {} texts cannot be divided over {} devices; choose a multiple of {}",
                                 config.batch, members_, members_));
  if (!devices.empty() && devices[0] != default_device())
    throw UsageError(
        fmt::format("the first device is {}, but the default device is {}; make it the default device before",
                    devices[0].to_string(), default_device().to_string()));
  if (checkpoint) step_ = checkpoint->step;
  if (members_ == 1) {
    learner_ = std::make_unique<Learner>(config_, checkpoint);
    return;
  }
  const auto group = std::make_shared<parallel::Group>(members_);
  const parallel::Member first(group, 0);
  learner_ = std::make_unique<Learner>(config_, checkpoint, &first);
  // The others begin with the bits of the first, which another device might draw otherwise.
  others_ = std::make_unique<Others>(group, devices, config_, data_, this->checkpoint());
}

Trainer::~Trainer() = default;

Trainer::StepResult Trainer::step(double elapsed) {
  Command command{step_, learning_rate_ = config_.learning_rate_at(step_, elapsed)};
  if (others_) others_->group->broadcast(0, bytes_of(command));
  auto [loss, norm] = learner_->step(command.learning_rate, batches_of(config_, data_, step_, 0, members_));
  ++step_;
  return {std::move(loss), std::move(norm)};
}

Profile Trainer::profile() {
  return learner_->profile(config_.learning_rate_at(step_, 0), batches_of(config_, data_, step_, 0, members_)[0]);
}

Trainer::Evaluation Trainer::evaluate(std::int64_t batches) {
  const std::span<const Token> tokens = data_.validation();
  const Extent context = config_.model.context, rows = config_.batch;
  const auto targets = static_cast<Extent>(tokens.size()) - 1;
  const Extent windows = (targets + context - 1) / context;
  const Extent wanted = batches > 0 ? std::min<Extent>(batches * rows, windows) : windows;

  model().eval();
  Evaluation result;
  double sum = 0;
  for (Extent first = 0; first < wanted; first += rows) {
    std::vector<Token> inputs(static_cast<std::size_t>(rows * context), 0), expected(inputs.size(), Learner::kIgnored);
    Extent counted = 0;
    for (Extent row = 0; row < std::min(rows, wanted - first); ++row) {
      const Extent window = wanted == windows ? first + row : (first + row) * windows / wanted;
      const Extent begin = window * context, length = std::min(context, targets - begin);
      std::copy_n(tokens.begin() + begin, length, inputs.begin() + row * context);
      std::copy_n(tokens.begin() + begin + 1, length, expected.begin() + row * context);
      counted += length;
    }
    const Tensor loss = learner_->loss(tensor_from_bytes(inputs.data(), {rows, context}, DType::i32),
                                       tensor_from_bytes(expected.data(), {rows, context}, DType::i32));
    sum += static_cast<double>(loss.item<float>()) * static_cast<double>(counted);
    result.tokens += counted;
  }
  model().train();
  result.loss = sum / static_cast<double>(result.tokens);
  return result;
}

Checkpoint Trainer::checkpoint() const {
  Checkpoint c;
  c.config = config_;
  c.vocabulary = data_.vocabulary;
  c.step = step_;
  learner_->save_to(c);
  return c;
}

std::uint64_t Trainer::planned_step_bytes() { return learner_->planned_step_bytes(config_.batch / members_); }
nn::GPT& Trainer::model() { return learner_->model(); }
const optim::LossScale* Trainer::loss_scale() const { return learner_->loss_scale(); }
Compiled& Trainer::compiled_step() { return learner_->compiled_step(); }

}  // namespace weft::train
