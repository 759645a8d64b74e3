// Several devices at one task, played by several members on the CPU. Run it under the thread sanitizer, too.
#include "weft/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "base/message_of.hpp"
#include "base/threads.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"
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
      [] { run(cpus(2), [](Member& member) { member.all_reduce_mean(full({3}, 1, DType::f16)); }); });
  EXPECT_NE(type.find("adds f32, not f16"), std::string::npos) << type;
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
