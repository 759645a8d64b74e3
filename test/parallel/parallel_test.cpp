// Several devices at one task, played by several members on the CPU. Run it under the thread sanitizer, too.
#include "weft/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "base/message_of.hpp"
#include "base/threads.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"
#include "weft/half.hpp"
#include "weft/ops.hpp"
#include "weft/session.hpp"

namespace weft::parallel {
namespace {

using test::message_of;
using Floats = std::vector<float>;

std::vector<Device> cpus(int count) { return std::vector<Device>(static_cast<std::size_t>(count), kCpu); }

TEST(Parallel, MeansAreTheSameBitsEverywhereAndInTheOrderOfRanks) {
  for (const int members : {1, 2, 3, 5})
    for (const Extent count : {0, 1, 2, 7, 4096, 9001}) {
      std::vector<Floats> means(static_cast<std::size_t>(members));
      const auto number = [](int rank, Extent i) {
        return std::sin(static_cast<float>(i * 7 + rank)) * (rank == 1 ? 1e6f : 1.0f);
      };
      run(cpus(members), [&](Member& member) {
        Floats own(static_cast<std::size_t>(count));
        for (Extent i = 0; i < count; ++i) own[static_cast<std::size_t>(i)] = number(member.rank(), i);
        const Tensor values[] = {tensor<float>(own), full({}, member.rank())};
        const std::vector<Tensor> got = member.all_reduce_mean(values);
        EXPECT_EQ(got[1].item<float>(), static_cast<float>(members - 1) / 2);
        means[static_cast<std::size_t>(member.rank())] = got[0].to_vector<float>();
      });
      const float factor = 1.0f / static_cast<float>(members);
      for (Extent i = 0; i < count; ++i) {
        float sum = number(0, i);
        for (int rank = 1; rank < members; ++rank) sum += number(rank, i);
        for (const Floats& mean : means)
          ASSERT_EQ(mean.at(static_cast<std::size_t>(i)), sum * factor) << members << " " << i;
      }
    }
}

TEST(Parallel, MeansOfHalvesAreSumsInF32RoundedOnce) {
  constexpr int kMembers = 3;
  constexpr Extent kCount = 5001;  // no whole number of words, and several blocks
  const auto number = [](int rank, Extent i) {
    return std::sin(static_cast<float>(i * 7 + rank)) * (rank == 1 ? 300.0f : 1.0f);
  };
  const auto check = [&](DType type, auto round, float too_large) {
    std::vector<Floats> means(kMembers);
    run(cpus(kMembers), [&](Member& member) {
      Floats own(kCount);
      for (Extent i = 0; i < kCount; ++i) own[static_cast<std::size_t>(i)] = number(member.rank(), i);
      own[0] = too_large;
      own[1] = member.rank() == 2 ? std::nanf("") : 1.0f;
      const Tensor mean = member.all_reduce_mean(cast(tensor<float>(own), type));
      EXPECT_EQ(mean.dtype(), type);
      means[static_cast<std::size_t>(member.rank())] = cast(mean, DType::f32).to_vector<float>();
    });
    for (const Floats& mean : means) {
      EXPECT_EQ(mean[0], round(round(too_large)));
      EXPECT_TRUE(std::isnan(mean[1]));
    }
    for (Extent i = 2; i < kCount; ++i) {
      float sum = 0;
      for (int rank = 0; rank < kMembers; ++rank) sum += round(number(rank, i));
      for (const Floats& mean : means)
        ASSERT_EQ(mean.at(static_cast<std::size_t>(i)), round(sum * (1.0f / kMembers))) << i;
    }
  };
  // The sum of three is beyond f16, the mean is not; of what is infinite, so is the mean.
  check(
      DType::f16, [](float x) { return f32_from_f16(f16_from_f32(x)); }, 60000.0f);
  check(
      DType::f16, [](float x) { return f32_from_f16(f16_from_f32(x)); }, 70000.0f);
  check(
      DType::bf16, [](float x) { return f32_from_bf16(bf16_from_f32(x)); }, 70000.0f);
}

/// WEFT_DEVICE names a GPU, which copies the next values while the host adds.
TEST(Parallel, MeansOfAGpuAndTheCpu) {
  const Device gpu = default_device();
  if (gpu.kind != Device::Kind::webgpu) GTEST_SKIP() << "WEFT_DEVICE names no GPU";
  const Device devices[] = {gpu, kCpu, gpu};
  run(devices, [](Member& member) {
    // Numbers that every type holds, and a count that is no whole number of words in 16 bits.
    const auto numbers = [&](Extent count) {
      Floats own(static_cast<std::size_t>(count));
      for (Extent i = 0; i < count; ++i)
        own[static_cast<std::size_t>(i)] = static_cast<float>(i % 64 + 3 * member.rank());
      return tensor<float>(own);
    };
    const Extent counts[] = {70000, 4097, 1, 2, 30000, 8192};
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      std::vector<Tensor> values;
      for (const Extent count : counts) values.push_back(cast(numbers(count), type));
      values.push_back(full({5}, 3 * member.rank(), type));  // a constant, which has no memory
      const std::vector<Tensor> means = member.all_reduce_mean(values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Floats got = cast(means[i], DType::f32).to_vector<float>();
        for (std::size_t k = 0; k < got.size(); ++k)
          ASSERT_EQ(got[k], static_cast<float>(i + 1 == values.size() ? 3 : k % 64 + 3)) << name_of(type) << " " << k;
      }
    }
    member.send((member.rank() + 1) % 3, numbers(100));
    EXPECT_EQ(member.receive((member.rank() + 2) % 3).to_vector<float>()[1],
              static_cast<float>(1 + 3 * ((member.rank() + 2) % 3)));
  });
}

TEST(Parallel, RankZeroIsBroadcastInEveryType) {
  run(cpus(3), [](Member& member) {
    const Tensor own[] = {full({2, 2}, member.rank() + 1, DType::i64), full({3}, member.rank() == 0, DType::boolean),
                          full({0}, 1, DType::f16)};
    const std::vector<Tensor> got = member.broadcast(own);
    EXPECT_EQ(got[0].to_vector<std::int64_t>(), std::vector<std::int64_t>(4, 1));
    EXPECT_EQ(cast(got[1], DType::i32).to_vector<std::int32_t>(), std::vector<std::int32_t>(3, 1));
    EXPECT_EQ(got[2].shape(), Shape{0});
  });
}

TEST(Parallel, ValuesComeInTheOrderInWhichTheyWereSent) {
  run(cpus(3), [](Member& member) {
    const int next = (member.rank() + 1) % 3, before = (member.rank() + 2) % 3;
    for (int i = 0; i < 20; ++i)
      member.send(next, full({2, i}, member.rank() * 100 + i, i % 2 ? DType::i32 : DType::f16));
    if (member.rank() == 0) member.send(2, full({}, 7));
    for (int i = 0; i < 20; ++i) {
      const Tensor got = member.receive(before);
      EXPECT_EQ(got.shape(), (Shape{2, i}));
      EXPECT_EQ(got.dtype(), i % 2 ? DType::i32 : DType::f16);
      if (i > 0) {
        EXPECT_EQ(cast(got, DType::f32).to_vector<float>()[0], static_cast<float>(before * 100 + i));
      }
    }
    if (member.rank() == 2) {
      EXPECT_EQ(member.receive(0).item<float>(), 7);
    }
  });
  for (const int wrong : {-1, 0, 2}) {
    EXPECT_THROW(run(cpus(2),
                     [&](Member& member) {
                       if (member.rank() == 0) member.send(wrong, full({}, 1));
                     }),
                 UsageError);
    EXPECT_THROW(run(cpus(2),
                     [&](Member& member) {
                       if (member.rank() == 0) member.receive(wrong);
                     }),
                 UsageError);
  }
  // Who waits for a member that has failed gets its error.
  const std::string message = message_of<ShapeError>([] {
    run(cpus(2), [](Member& member) {
      if (member.rank() == 1) throw ShapeError("no such shape");
      member.receive(1);
    });
  });
  EXPECT_EQ(message.substr(0, 13), "no such shape");
}

TEST(Parallel, MembersTakeTheSettingsOfTheCallerAndShareItsThreads) {
  Session outside({.threads = 4});
  const auto in = outside.enter();
  compile_settings().products = ProductPrecision::high;
  run(cpus(2), [&](Member& member) {
    EXPECT_EQ(member.size(), 2);
    EXPECT_EQ(thread_count(), 2);
    EXPECT_EQ(compile_settings().products, ProductPrecision::high);
    EXPECT_EQ(default_device(), kCpu);
  });
}

TEST(Parallel, AnErrorOfOneMemberEndsAll) {
  for (const int failing : {0, 2}) {
    std::atomic<int> ended = 0;
    const std::string message = message_of<ShapeError>([&] {
      run(cpus(3), [&](Member& member) {
        try {
          for (int i = 0;; ++i) {
            if (i == 5 && member.rank() == failing) throw ShapeError("no such shape");
            member.all_reduce_mean(full({8}, i));
          }
        } catch (const ShapeError&) {
          ++ended;
          throw;
        }
      });
    });
    EXPECT_EQ(message.substr(0, 13), "no such shape");
    EXPECT_NE(message.find("working as member " + std::to_string(failing) + " on cpu"), std::string::npos) << message;
    EXPECT_EQ(ended, 3);
  }
}

TEST(Parallel, DifferentCallsAreRefused) {
  const std::string numbers = message_of<UsageError>(
      [] { run(cpus(2), [](Member& member) { member.all_reduce_mean(full({3 + member.rank()}, 1)); }); });
  EXPECT_NE(numbers.find("rank 0 gives 3 numbers and rank 1 gives 4"), std::string::npos) << numbers;
  const std::string bytes = message_of<UsageError>(
      [] { run(cpus(2), [](Member& member) { member.broadcast(full({3 + member.rank()}, 1)); }); });
  EXPECT_NE(bytes.find("rank 0 gives 12 bytes and rank 1 gives 16"), std::string::npos) << bytes;
  const std::string type = message_of<DTypeError>(
      [] { run(cpus(2), [](Member& member) { member.all_reduce_mean(full({3}, 1, DType::i32)); }); });
  EXPECT_NE(type.find("adds f32, f16 or bf16, not i32"), std::string::npos) << type;
  const std::string types = message_of<UsageError>([] {
    run(cpus(2),
        [](Member& member) { member.all_reduce_mean(full({3}, 1, member.rank() == 0 ? DType::f16 : DType::bf16)); });
  });
  EXPECT_NE(types.find("rank 0 gives f16 and rank 1 gives bf16"), std::string::npos) << types;
  EXPECT_THROW(run({}, [](Member&) {}), UsageError);
}

TEST(Parallel, DevicesByName) {
  EXPECT_EQ(parse_devices("cpu"), cpus(1));
  EXPECT_EQ(parse_devices("cpu,cpu,cpu"), cpus(3));
  for (const char* wrong : {"", ",", "cpu,", ",cpu", "cpu,,cpu", "cpu,gpu", "cpu, cpu"})
    EXPECT_THROW(parse_devices(wrong), UsageError) << wrong;
}

}  // namespace
}  // namespace weft::parallel
