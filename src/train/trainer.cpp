#include "weft/train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/team.hpp"
#include "train/learner.hpp"
#include "train/pipeline_stage.hpp"
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

namespace {

/// Calls `loss` with windows of the validation text, [rows, context] each, as Trainer::evaluate says.
Trainer::Evaluation evaluate_windows(const RunConfig& config, const TextData& data, std::int64_t batches,
                                     const std::function<double(const Tensor& inputs, const Tensor& targets)>& loss) {
  const std::span<const Token> tokens = data.validation();
  const Extent context = config.model.context, rows = config.batch;
  const auto targets = static_cast<Extent>(tokens.size()) - 1;
  const Extent windows = (targets + context - 1) / context;
  const Extent wanted = batches > 0 ? std::min<Extent>(batches * rows, windows) : windows;

  Trainer::Evaluation result;
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
    sum += loss(tensor_from_bytes(inputs.data(), {rows, context}, DType::i32),
                tensor_from_bytes(expected.data(), {rows, context}, DType::i32)) *
           static_cast<double>(counted);
    result.tokens += counted;
  }
  result.loss = sum / static_cast<double>(result.tokens);
  return result;
}

}  // namespace

/// The stages of a model that is divided by layers. The first works in the caller's thread and tells the others what to do.
struct Trainer::Divided {
  enum class Work : std::int64_t { step, evaluate, save };
  struct Order {
    Work work;
    std::int64_t number = 0;  // of the step, or of batches to evaluate
    double learning_rate = 0;
  };

  Divided(std::span<const Device> devices, const RunConfig& config, const TextData& data, const Checkpoint* checkpoint)
      : config(config),
        data(data),
        start(checkpoint ? std::optional(*checkpoint) : std::nullopt),
        group(std::make_shared<parallel::Group>(static_cast<int>(devices.size()))),
        first(config, checkpoint, parallel::Member(group, 0)),
        team(group, devices, 1, [this](int rank) { follow(rank); }) {}

  void follow(int rank) {
    PipelineStage stage(config, start ? &*start : nullptr, parallel::Member(group, rank));
    for (Order order{};;) {
      group->broadcast(rank, std::as_writable_bytes(std::span(&order, 1)));
      switch (order.work) {
        case Work::step: make_step(stage, order); break;
        case Work::evaluate: evaluate(stage, rank, order); break;
        case Work::save: save(stage, rank); break;
      }
    }
  }
  void tell(Order order) { group->broadcast(0, std::as_writable_bytes(std::span(&order, 1))); }

  PipelineStage::StepResult make_step(PipelineStage& stage, const Order& order) const {
    std::vector<Tensor> batches;
    return stage.step(order.number, order.learning_rate, [&](Extent i) {
      if (batches.empty()) batches = batches_of(config, data, order.number, 0, 1);
      return batches[static_cast<std::size_t>(i)];
    });
  }

  Evaluation evaluate(PipelineStage& stage, int rank, const Order& order) const {
    parallel::Member member(group, rank);
    stage.train(false);
    const Evaluation result =
        evaluate_windows(config, data, order.number, [&](const Tensor& inputs, const Tensor& targets) {
          const Tensor loss = stage.loss(inputs, targets);
          if (rank == 0) return static_cast<double>(member.receive(group->size() - 1).item<float>());
          if (stage.is_last()) member.send(0, loss);
          return 0.0;
        });
    stage.train(true);
    return result;
  }

  /// One stage after the other adds its state.
  void save(const PipelineStage& stage, int rank) const {
    for (int turn = 0; turn < group->size(); ++turn) {
      if (turn == rank) stage.save_to(*saved);
      group->barrier();
    }
  }

  const RunConfig& config;
  const TextData& data;
  const std::optional<Checkpoint> start;
  const std::shared_ptr<parallel::Group> group;
  Checkpoint* saved = nullptr;  // where stages put their state
  PipelineStage first;
  parallel::Team team;
};

Trainer::Trainer(const RunConfig& config, const TextData& data, std::span<const Device> devices, Sharing sharing)
    : Trainer(config, data, nullptr, devices, sharing) {}

Trainer::Trainer(const RunConfig& config, const TextData& data, const Checkpoint& checkpoint,
                 std::span<const Device> devices, Sharing sharing)
    : Trainer(config, data, &checkpoint, devices, sharing) {}

Trainer::Trainer(const RunConfig& config, const TextData& data, const Checkpoint* checkpoint,
                 std::span<const Device> devices, Sharing sharing)
    : config_(config), data_(data), members_(std::max(1, static_cast<int>(devices.size()))) {
  check(devices, sharing);
  if (checkpoint) step_ = checkpoint->step;
  if (sharing == Sharing::layers) {
    divided_ = std::make_unique<Divided>(devices, config_, data_, checkpoint);
    return;
  }
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

void Trainer::check(std::span<const Device> devices, Sharing sharing) const {
  if (sharing == Sharing::batches && config_.batch % members_ != 0)
    throw UsageError(fmt::format("a batch of {} texts cannot be divided over {} devices; choose a multiple of {}",
                                 config_.batch, members_, members_));
  if (!devices.empty() && devices[0] != default_device())
    throw UsageError(
        fmt::format("the first device is {}, but the default device is {}; make it the default device before",
                    devices[0].to_string(), default_device().to_string()));
  if (sharing != Sharing::layers) return;
  if (members_ == 1) throw UsageError("a model is divided over several devices, and there is one; name more");
  if (config_.precision == DType::f16)
    throw UsageError(
        "a model that is divided over devices trains in f32 or bf16, because its loss is not scaled; choose bf16");
}

Trainer::~Trainer() = default;

Trainer::StepResult Trainer::step(double elapsed) {
  learning_rate_ = config_.learning_rate_at(step_, elapsed);
  if (divided_) {
    const Divided::Order order{Divided::Work::step, step_, learning_rate_};
    divided_->tell(order);
    PipelineStage::StepResult result = divided_->make_step(divided_->first, order);
    ++step_;
    return {std::move(result.loss), std::move(result.grad_norm)};
  }
  Command command{step_, learning_rate_};
  if (others_) others_->group->broadcast(0, bytes_of(command));
  auto [loss, norm] = learner_->step(command.learning_rate, batches_of(config_, data_, step_, 0, members_));
  ++step_;
  return {std::move(loss), std::move(norm)};
}

Profile Trainer::profile() {
  return learner().profile(config_.learning_rate_at(step_, 0), batches_of(config_, data_, step_, 0, members_)[0]);
}

Trainer::Evaluation Trainer::evaluate(std::int64_t batches) {
  if (divided_) {
    const Divided::Order order{Divided::Work::evaluate, batches};
    divided_->tell(order);
    return divided_->evaluate(divided_->first, 0, order);
  }
  model().eval();
  const Evaluation result = evaluate_windows(config_, data_, batches, [&](const Tensor& inputs, const Tensor& targets) {
    return static_cast<double>(learner_->loss(inputs, targets).item<float>());
  });
  model().train();
  return result;
}

Checkpoint Trainer::checkpoint() const {
  Checkpoint c;
  c.config = config_;
  c.vocabulary = data_.vocabulary;
  c.step = step_;
  if (divided_) {
    divided_->saved = &c;
    divided_->tell({Divided::Work::save});
    divided_->save(divided_->first, 0);
  } else {
    learner_->save_to(c);
  }
  return c;
}

std::uint64_t Trainer::planned_step_bytes() { return learner_->planned_step_bytes(config_.batch / members_); }
Learner& Trainer::learner() const {
  if (!learner_)
    throw UsageError(
        "train: a model that is divided over devices has no single plan to look at; train on one device for that");
  return *learner_;
}
nn::GPT& Trainer::model() { return divided_ ? divided_->first.model() : learner_->model(); }
const optim::LossScale* Trainer::loss_scale() const { return learner_ ? learner_->loss_scale() : nullptr; }
Compiled& Trainer::compiled_step() { return learner().compiled_step(); }

}  // namespace weft::train
