// Requests that wait for one sequence, and what hooks are told of them.
#include "serve/generation_queue.hpp"

#include <gtest/gtest.h>

#include <mutex>

#include "base/temporary_folder.hpp"
#include "llm/byte_model.hpp"

namespace weft::serve {
namespace {

using std::chrono::steady_clock;

void wait_for_end(GenerationTicket& ticket) {
  for (bool is_waiting = true; is_waiting;)
    (void)ticket.next_until(steady_clock::now() + std::chrono::milliseconds(50), is_waiting);
}

TEST(GenerationQueue, HooksAreToldOfWaitsAndTexts) {
  test::TemporaryFolder folder;
  test::put_byte_model(folder, "{{ messages[0].content }}");
  std::mutex mutex;
  std::vector<GenerationRecord> records;
  std::vector<QueueWait> waits;
  GenerationQueue queue(llm::load(folder.path(), {.context = 256}),
                        {.hooks = {.on_generate =
                                       [&](const GenerationRecord& record) {
                                         const std::lock_guard lock(mutex);
                                         records.push_back(record);
                                         throw std::runtime_error("a hook's own failure");  // which is dropped
                                       },
                                   .on_queue_wait =
                                       [&](const QueueWait& wait) {
                                         const std::lock_guard lock(mutex);
                                         waits.push_back(wait);
                                       },
                                   .wait_least = 0}});
  const std::vector<std::int32_t> prompt = queue.model().encode("hello");
  const llm::GenerateOptions options{.max_tokens = 20, .sampling = {.temperature = 0}};
  GenerationTicket first = queue.submit({{llm::Prompt(prompt), options}}),
                   second = queue.submit({{llm::Prompt(prompt), options}});
  wait_for_end(first);
  wait_for_end(second);
  const std::lock_guard lock(mutex);
  ASSERT_EQ(records.size(), 2u);
  ASSERT_EQ(waits.size(), 2u);
  for (const GenerationRecord& record : records) {
    EXPECT_EQ(record.prompt_tokens, prompt.size());
    EXPECT_GT(record.generated_tokens, 0u);
    EXPECT_LE(record.generated_tokens, 20u);
    EXPECT_EQ(record.error, "");
    EXPECT_GT(record.seconds, 0);
  }
  // One sequence: the second text waited at least as long as the first was written.
  EXPECT_GE(records[1].waiting_seconds, records[0].seconds * 0.9);
  EXPECT_EQ(records[1].waiting_seconds, waits[1].seconds);
  EXPECT_EQ(records[1].reused_tokens, prompt.size() - 1);
  const QueueCounts counts = queue.counts();
  EXPECT_DOUBLE_EQ(counts.waiting_seconds, waits[0].seconds + waits[1].seconds);
  EXPECT_DOUBLE_EQ(counts.writing_seconds, records[0].seconds + records[1].seconds);
}

TEST(GenerationQueue, ShortWaitsAreNotTold) {
  test::TemporaryFolder folder;
  test::put_byte_model(folder, "{{ messages[0].content }}");
  int waits = 0;
  GenerationQueue queue(llm::load(folder.path(), {.context = 256}),
                        {.hooks = {.on_queue_wait = [&](const QueueWait&) { ++waits; }, .wait_least = 1000}});
  GenerationTicket ticket = queue.submit({{llm::Prompt(queue.model().encode("a")), {.max_tokens = 2}}});
  wait_for_end(ticket);
  EXPECT_EQ(waits, 0);
}

}  // namespace
}  // namespace weft::serve
