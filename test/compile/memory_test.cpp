// The places of intermediate values: apart while they live together, within the limits of a device.
#include "compile/memory.hpp"

#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "weft/error.hpp"

namespace weft::compiler {
namespace {

bool overlap(const MemoryRequest& request, const MemoryPlan& plan, std::size_t a, std::size_t b) {
  const MemoryValue &x = request.values[a], &y = request.values[b];
  const MemoryPlan::Slot &p = plan.slots[a], &q = plan.slots[b];
  return p.buffer == q.buffer && x.first <= y.last && y.first <= x.last && p.offset < q.offset + y.bytes &&
         q.offset < p.offset + x.bytes;
}

void expect_sound(const MemoryRequest& request, const MemoryPlan& plan) {
  ASSERT_EQ(plan.slots.size(), request.values.size());
  for (std::size_t a = 0; a < request.values.size(); ++a) {
    const MemoryPlan::Slot& slot = plan.slots[a];
    EXPECT_EQ(slot.offset % request.alignment, 0u);
    EXPECT_LE(slot.offset + request.values[a].bytes, plan.buffers[static_cast<std::size_t>(slot.buffer)]);
    for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(overlap(request, plan, a, b)) << a << " and " << b;
  }
  for (const auto& [a, b] : request.apart)
    EXPECT_NE(plan.slots[static_cast<std::size_t>(a)].buffer, plan.slots[static_cast<std::size_t>(b)].buffer);
  if (request.buffer_bytes_max > 0) {
    for (const std::size_t bytes : plan.buffers) EXPECT_LE(bytes, request.buffer_bytes_max);
  }
}

MemoryRequest four_at_once() {
  MemoryRequest request;
  for (int i = 0; i < 4; ++i) request.values.push_back({.bytes = 1000, .first = 0, .last = 3, .title = "value"});
  return request;
}

TEST(MemoryPlan, ValuesShareWhatOthersLeave) {
  MemoryRequest request;
  request.values = {{1000, 0, 1, "a"}, {1000, 1, 2, "b"}, {900, 2, 3, "c"}, {100, 2, 3, "d"}};
  const MemoryPlan plan = plan_memory(request);
  expect_sound(request, plan);
  ASSERT_EQ(plan.buffers.size(), 1u);
  EXPECT_LT(plan.buffers[0], 2200u);  // of 3000
}

TEST(MemoryPlan, ABufferGrowsToTheLimitOfTheDevice) {
  MemoryRequest request = four_at_once();
  EXPECT_EQ(plan_memory(request).buffers.size(), 1u);
  request.buffer_bytes_max = 2100;
  const MemoryPlan plan = plan_memory(request);
  expect_sound(request, plan);
  EXPECT_EQ(plan.buffers.size(), 2u);
  request.buffer_bytes_max = 1000;
  expect_sound(request, plan_memory(request));
}

TEST(MemoryPlan, WhatMustBeApartIs) {
  MemoryRequest request = four_at_once();
  request.apart = {{0, 1}, {2, 3}, {0, 3}};
  const MemoryPlan plan = plan_memory(request);
  expect_sound(request, plan);
  EXPECT_EQ(plan.buffers.size(), 2u);
}

TEST(MemoryPlan, AValueOverTheLimitOfABindingIsAnError) {
  MemoryRequest request = four_at_once();
  request.binding_bytes_max = 999;
  const std::string message = test::message_of<DeviceError>([&] { plan_memory(request); });
  EXPECT_NE(message.find("value needs 1000 bytes, over the device's limit of 999"), std::string::npos) << message;
}

}  // namespace
}  // namespace weft::compiler
