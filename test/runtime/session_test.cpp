// Sessions: what is apart, what is refused, and threads that work at once. Run it under the thread sanitizer, too.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "backend/trace/backend.hpp"
#include "base/keep_thread_count.hpp"
#include "base/message_of.hpp"
#include "base/threads.hpp"
#include "graph/node.hpp"
#include "runtime/devices.hpp"
#include "runtime/evaluate.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/session.hpp"

namespace weft {
namespace {

using test::message_of;

using Floats = std::vector<float>;

void together(int threads, const std::function<void(int)>& work) {
  std::barrier start(threads);
  std::vector<std::jthread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      start.arrive_and_wait();
      work(t);
    });
}

// A small training run with random numbers, eager and compiled steps: the bits of its weights.
Floats train(std::uint32_t seed, int steps) {
  manual_seed(seed);
  Variable w(randn({8, 8}), "w"), b(zeros({8}), "b");
  const Tensor x = randn({16, 8}).eval();
  const auto loss_of = [&] { return mean(tanh(dropout(matmul(x, w.value()) + b.value(), 0.25))); };
  auto step = compile([&](const Tensor& rate) {
    const Tensor loss = loss_of();
    const Tensor wanted[] = {w.value(), b.value()};
    const auto g = grad(loss, wanted);
    w.assign(w.value() - g[0] * rate);
    b.assign(b.value() - g[1] * rate);
    return loss;
  });
  for (int i = 0; i < steps; ++i) {
    if (i % 2) {
      step(full({}, 0.1));
      continue;
    }
    backward(loss_of());
    w.assign(w.value() - w.grad() * (1.0 / (i + 1)));
    b.assign(b.value() - b.grad() * (1.0 / (i + 1)));
    w.clear_grad();
    b.clear_grad();
  }
  return w.value().to_vector<float>();
}

TEST(Session, GivesTheBitsThatItGivesAlone) {
  const Floats first = train(1, 12), second = train(2, 12);
  ASSERT_NE(first, second);
  Floats results[4];
  together(4, [&](int t) {
    Session session({.threads = 1 + t % 2});
    const auto in = session.enter();
    results[t] = train(static_cast<std::uint32_t>(1 + t / 2), 12);
  });
  EXPECT_EQ(results[0], first);
  EXPECT_EQ(results[1], first);
  EXPECT_EQ(results[2], second);
  EXPECT_EQ(results[3], second);
}

TEST(Session, HasItsOwnDeviceSeedSettingsThreadsAndPlans) {
  manual_seed(7);
  eval_pending();
  const std::size_t plans = runtime::compiled_plan_count(), nodes = graph::live_node_count();
  const int threads = thread_count();
  {
    Session session({.threads = 3, .device = Device{Device::Kind::trace, 0}});
    EXPECT_EQ(session.threads(), 3);
    const auto in = session.enter();
    EXPECT_EQ(default_device().to_string(), "trace");
    EXPECT_EQ(thread_count(), 3);
    EXPECT_EQ(graph::live_node_count(), 0u);
    EXPECT_EQ(runtime::compiled_plan_count(), 0u);
    compile_settings().fusion = false;
    set_default_device(kCpu);
    set_thread_count(2);
    EXPECT_EQ(random_state().value().to_vector<std::uint32_t>()[0], 0u);
    manual_seed(9);
    EXPECT_EQ((ones({3}) + 1.0).to_vector<float>(), Floats(3, 2));
    EXPECT_GT(runtime::compiled_plan_count(), 0u);
    Variable pending(zeros({2}), "pending");
    EXPECT_FALSE(graph::pending_cells().empty());
    {
      Session inner;
      const auto inside = inner.enter();
      EXPECT_TRUE(graph::pending_cells().empty());
    }
    EXPECT_EQ(thread_count(), 2);
  }
  EXPECT_EQ(default_device(), kCpu);
  EXPECT_TRUE(compile_settings().fusion);
  EXPECT_EQ(thread_count(), threads);
  EXPECT_EQ(random_state().value().to_vector<std::uint32_t>()[0], 7u);
  EXPECT_EQ(runtime::compiled_plan_count(), plans);
  EXPECT_LE(graph::live_node_count(), nodes + 4);
}

TEST(Session, ValuesOfAnotherSessionAreRefusedOrCopied) {
  Session session;
  Tensor theirs, lazy;
  Variable variable;
  {
    const auto in = session.enter();
    theirs = tensor<float>({1, 2}).named("theirs");
    lazy = theirs * 3.0;
    variable = Variable(theirs, "w");
  }
  EXPECT_EQ(theirs.to_vector<float>(), (Floats{1, 2}));  // elements that are there may be read anywhere
  EXPECT_EQ(message_of<UsageError>([&] { (void)(theirs + 1.0); }),
            "add: an operand, f32 [2] \"theirs\", belongs to another session; use it where that session is entered, or "
            "give a copy to this one with Session::copy");
  EXPECT_NE(message_of<UsageError>([&] { lazy.eval(); }).find("eval: the value belongs to another session"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { (void)variable.value(); }).find("variable \"w\" belongs to another session"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { variable.assign(ones({2})); }).find("belongs to another session"),
            std::string::npos);
  Session other;
  const Tensor copied = other.copy(lazy);
  EXPECT_THROW((void)(copied + 1.0), UsageError);
  const auto in = other.enter();
  EXPECT_EQ((copied + 1.0).to_vector<float>(), (Floats{4, 7}));
  EXPECT_THROW(Session({.threads = -1}), UsageError);
}

TEST(Session, TensorsOutliveIt) {
  Tensor kept;
  Variable variable;
  {
    Session session({.threads = 2});
    const auto in = session.enter();
    kept = (ones({1000}) * 2.0).eval();
    variable = Variable(zeros({3}), "w");
    Compiled f([&](std::span<const Tensor> x) { return std::vector<Tensor>{x[0] + 1.0}; });
    f(std::vector<Tensor>{kept});
  }
  EXPECT_EQ(kept.to_vector<float>(), Floats(1000, 2));
}

// Jobs of two sessions that wait for each other end only if both run at once.
TEST(Session, JobsRunSideBySide) {
  std::barrier meet(2);
  std::atomic<int> met = 0;
  together(2, [&](int) {
    Session session({.threads = 2});
    const auto in = session.enter();
    std::atomic<bool> first = true;
    parallel_for(2, [&](std::int64_t) {
      if (!first.exchange(false)) return;
      meet.arrive_and_wait();
      ++met;
    });
  });
  EXPECT_EQ(met, 2);
}

TEST(Session, ThreadsOfOneSessionEvaluateAtOnce) {
  Session session({.threads = 2});
  const auto outer = session.enter();
  const Tensor shared = randn({32, 32}).eval();
  const Floats expected = sum(matmul(shared, shared), {0}).to_vector<float>();
  std::atomic<int> wrong = 0;
  together(4, [&](int t) {
    const auto in = session.enter();
    for (int i = 0; i < 25; ++i) {
      // The same nodes in all threads, numbers that differ, and structures of each thread's own.
      if (sum(matmul(shared, shared), {0}).to_vector<float>() != expected) ++wrong;
      const double factor = 1 + t * 100 + i;
      const float first = select(select(shared * factor, 0, 0), 0, 0).item<float>();
      if (first != select(select(shared, 0, 0), 0, 0).item<float>() * static_cast<float>(factor)) ++wrong;
      if (sum(ones({1 + t, 1 + i})).item<float>() != static_cast<float>((1 + t) * (1 + i))) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

// A device on which each run waits until a run on the other device is under way, too.
struct Meeting {
  std::mutex mutex;
  std::condition_variable came;
  int under_way = 0;
  bool met = false;
};
class MeetingBackend final : public backend::Backend {
 public:
  explicit MeetingBackend(Meeting& meeting) : meeting_(meeting) {}
  const backend::Description& describe() const override { return trace_->describe(); }
  int storage_bits(DType type) const override { return trace_->storage_bits(type); }
  backend::BufferPtr allocate(std::size_t bytes, std::string_view label) override {
    return trace_->allocate(bytes, label);
  }
  void upload(backend::Buffer& to, Extent first, Extent count, DType type, const void* host) override {
    trace_->upload(to, first, count, type, host);
  }
  void download(backend::Buffer& from, Extent first, Extent count, DType type, void* host) override {
    trace_->download(from, first, count, type, host);
  }
  std::unique_ptr<backend::Program> compile(const kernel::Plan&) override {
    struct Run final : backend::Program {
      explicit Run(Meeting& meeting) : meeting(meeting) {}
      void run(std::span<const backend::BufferPtr>) override {
        std::unique_lock lock(meeting.mutex);
        if (++meeting.under_way == 2) meeting.met = true;
        meeting.came.notify_all();
        meeting.came.wait_for(lock, std::chrono::seconds(20), [&] { return meeting.met; });
        --meeting.under_way;
      }
      std::string source() const override { return ""; }
      std::size_t scratch_bytes() const override { return 0; }
      Meeting& meeting;
    };
    return std::make_unique<Run>(meeting_);
  }
  void synchronize() override {}

 private:
  std::unique_ptr<backend::Backend> trace_ = trace::make_trace_backend();
  Meeting& meeting_;
};

TEST(Session, TwoDevicesOfOneSessionRunAtTheSameTime) {
  Meeting meeting;
  Session session;
  const auto outer = session.enter();
  const Device devices[] = {{Device::Kind::trace, 1}, {Device::Kind::trace, 2}};
  for (const Device device : devices) runtime::use_backend(device, std::make_unique<MeetingBackend>(meeting));
  together(2, [&](int t) {
    const auto in = session.enter();
    const Floats values(16, 1);
    exp(tensor<float>(std::span(values), {16}).to(devices[t]) * 2.0).eval();
  });
  EXPECT_TRUE(meeting.met);
}

TEST(Session, ThreadsOfOneSessionTrainVariablesOfTheirOwn) {
  const auto alone = [](int t) {
    Variable w(full({16}, 1.0 + t), "w");
    auto step = compile([&](const Tensor& rate) {
      const Tensor loss = sum(w.value() * w.value());
      w.assign(w.value() - grad(loss, w.value()) * rate);
      return loss;
    });
    for (int i = 0; i < 20; ++i) {
      step(full({}, 0.01));
      backward(sum(w.value() * 2.0));
      w.assign(w.value() - w.grad() * 0.01);
      w.clear_grad();
    }
    return w.value().to_vector<float>();
  };
  Floats expected[4], results[4];
  for (int t = 0; t < 4; ++t) expected[t] = alone(t);
  Session session;
  together(4, [&](int t) {
    const auto in = session.enter();
    results[t] = alone(t);
  });
  for (int t = 0; t < 4; ++t) EXPECT_EQ(results[t], expected[t]);
}

// A Variable that is made while a function is traced has a value only there, until the trace ends and refuses it.
TEST(Session, BackwardPassesByVariablesOfOtherTraces) {
  Session session;
  const auto outer = session.enter();
  std::barrier made(2), done(2);
  Floats gradient;
  std::jthread other([&] {
    const auto in = session.enter();
    Variable w(full({2}, 3.0), "w");
    made.arrive_and_wait();
    backward(sum(w.value() * w.value()));
    gradient = w.grad().to_vector<float>();
    done.arrive_and_wait();
  });
  bool first = true;
  auto step = compile([&](const Tensor& x) {
    if (std::exchange(first, false)) {
      const Variable inner(full({2}, 1.0), "inner");
      made.arrive_and_wait();
      done.arrive_and_wait();
    }
    return x * 2.0;
  });
  EXPECT_THROW(step(full({}, 4.0)), UsageError) << "a Variable is made inside of the function";
  EXPECT_EQ(gradient, (Floats{6, 6}));
}

// A trace takes neither what other threads assign meanwhile, nor does it give them what it assigns.
TEST(Session, TracesKeepToTheirOwnUpdates) {
  Session session;
  const auto outer = session.enter();
  Variable counted(full({}, 0), "counted", false), traced(full({}, 0), "traced", false);
  eval_pending();
  std::barrier inside(2), assigned(2);
  std::jthread other([&] {
    const auto in = session.enter();
    inside.arrive_and_wait();
    counted.assign(counted.value() + 5.0);
    EXPECT_EQ(traced.value().item<float>(), 0);
    counted.assign(counted.value() + 1.0);
    assigned.arrive_and_wait();
  });
  bool first = true;
  auto step = compile([&](const Tensor& by) {
    traced.assign(traced.value() + by);
    if (std::exchange(first, false)) {
      inside.arrive_and_wait();
      assigned.arrive_and_wait();
    }
    return traced.value() * 1.0;
  });
  EXPECT_EQ(step(full({}, 2)).item<float>(), 2);
  other.join();
  EXPECT_EQ(step(full({}, 3)).item<float>(), 5);
  EXPECT_EQ(counted.value().item<float>(), 6);
  EXPECT_EQ(traced.value().item<float>(), 5);
}

// Readers of a Variable that a compiled function writes over see whole values.
TEST(Session, ReadersNeverSeeHalfAnUpdate) {
  Session session({.threads = 1});
  const auto outer = session.enter();
  Variable w(zeros({4096}), "w", false);
  eval_pending();
  auto step = compile([&](const Tensor& by) { w.assign(w.value() + by); });
  std::atomic<bool> done = false;
  std::atomic<int> torn = 0;
  std::jthread reader([&] {
    const auto in = session.enter();
    while (!done) {
      const Floats now = w.value().to_vector<float>();
      for (const float v : now)
        if (v != now[0]) {
          ++torn;
          break;
        }
      const Tensor held = w.value();  // of one turn, however many follow before it is read
      if ((held - held).to_vector<float>() != Floats(4096)) ++torn;
    }
  });
  for (int i = 0; i < 200; ++i) step(full({}, 1));
  done = true;
  reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(w.value().to_vector<float>()[4095], 200);
}

TEST(Session, ThreadsDrawNumbersOfTheirOwn) {
  Session session;
  const auto outer = session.enter();
  manual_seed(3);
  std::vector<float> drawn[4];
  together(4, [&](int t) {
    const auto in = session.enter();
    for (int i = 0; i < 20; ++i) drawn[t].push_back(rand({}).item<float>());
  });
  std::vector<float> all;
  for (const auto& each : drawn) all.insert(all.end(), each.begin(), each.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(random_state().value().to_vector<std::uint32_t>()[1], 80u);
}

// A loop that never reads a value: neither its graph nor its plans grow.
TEST(Session, LoopsThatAskForNothingAreComputedOnTheWay) {
  Session session;
  const auto in = session.enter();
  Variable w(zeros({5}), "w");
  const Tensor x = tensor<float>({1, 2, 3, 4, 5});
  Tensor total = full({}, 0);
  std::size_t most = 0;
  for (int i = 0; i < 400; ++i) {
    const Tensor loss = sum(sigmoid(w.value() * x)) * 0.01;
    w.clear_grad();
    backward(loss);
    w.assign(w.value() - w.grad() * 0.1);
    total = total + detach(loss);
    most = std::max(most, runtime::compiled_plan_count());
  }
  EXPECT_LE(most, 8u);
  EXPECT_GT(most, 0u);
  Variable again(zeros({5}), "again");
  float expected = 0;
  for (int i = 0; i < 400; ++i) {
    const Tensor loss = sum(sigmoid(again.value() * x)) * 0.01;
    again.clear_grad();
    backward(loss);
    again.assign(again.value() - again.grad() * 0.1);
    expected += loss.item<float>();
  }
  EXPECT_FLOAT_EQ(total.item<float>(), expected);
  EXPECT_EQ(w.value().to_vector<float>(), again.value().to_vector<float>());
}

}  // namespace
}  // namespace weft
