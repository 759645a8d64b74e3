// Names from users and servers. What a fetch does with them is tested through the command (test/cli/fetch_test.py).
#include "hub/names.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "weft/error.hpp"
#include "weft/hub.hpp"

namespace weft::hub {
namespace {

struct NameCase {
  const char *text, *repository, *revision, *choice;
};

constexpr NameCase kNames[] = {
    {"hf:acme/tiny", "acme/tiny", "main", ""},
    {"acme/tiny", "acme/tiny", "main", ""},
    {"hf:gpt2", "gpt2", "main", ""},
    {"hf:acme/tiny:Q4_K_M", "acme/tiny", "main", "Q4_K_M"},
    {"hf:acme/tiny@v1.0", "acme/tiny", "v1.0", ""},
    {"hf:acme/tiny@refs/pr/3:a folder/b@c.gguf", "acme/tiny", "refs/pr/3", "a folder/b@c.gguf"},
};

TEST(HubNamesTest, AreRead) {
  for (const NameCase& each : kNames) {
    const ModelName name = parse_model_name(each.text);
    EXPECT_EQ(name.repository, each.repository) << each.text;
    EXPECT_EQ(name.revision, each.revision) << each.text;
    EXPECT_EQ(name.choice, each.choice) << each.text;
    EXPECT_EQ(parse_model_name(name.to_string()).to_string(), name.to_string());
  }
}

TEST(HubNamesTest, AreRefused) {
  for (const char* text : {"",
                           "hf:",
                           "hf:/",
                           "hf:a/",
                           "hf:/b",
                           "hf:a/b/c",
                           "hf:..",
                           "hf:../b",
                           "hf:a/..",
                           "hf:.a/b",
                           "hf:a/b@",
                           "hf:a/b@..",
                           "hf:a/b@/x",
                           "hf:a/b@x y",
                           "hf:a/b:",
                           "hf:a/b:/x",
                           "hf:a/b:../x",
                           "hf:a/b:x/../y",
                           "hf:a b/c",
                           "hf:a--b/c",
                           "hf:a/b\n",
                           "ftp://a/b.gguf",
                           "https://",
                           "https://a/b.bin",
                           "https://u@a/b.gguf",
                           "http://192.0.2.1/b.gguf"})
    EXPECT_THROW(parse_model_name(text), UsageError) << text;
}

TEST(HubNamesTest, FilesStayInTheirFolder) {
  for (const char* name : {"a", "a/b.gguf", "a b", "..a", "a..", "\xc3\xa9/x"})
    EXPECT_TRUE(is_safe_file_name(name)) << name;
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("/a"), std::string("a/"), std::string("a//b"),
        std::string("a/../b"), std::string("a\\b"), std::string("a\nb"), std::string("a\0b", 3), std::string("\xff"),
        std::string(300, 'a'), std::string(2000, 'a')})
    EXPECT_FALSE(is_safe_file_name(name)) << name;
}

TEST(HubNamesTest, OriginsAreComparedAsTheyAre) {
  EXPECT_EQ(origin_of("HTTPS://Hub.Example:443/x?y"), "https://hub.example");
  EXPECT_EQ(origin_of("http://hub.example:8080"), "http://hub.example:8080");
  EXPECT_EQ(origin_of("http://hub.example:80/"), "http://hub.example");
  for (const char* address : {"", "hub.example", "ftp://hub.example", "https://", "https://user@hub.example/",
                              "https://hub.example\\@evil/", "https:///x", "https://:80/"})
    EXPECT_EQ(origin_of(address), "") << address;
  EXPECT_TRUE(is_this_machine("http://127.0.0.1:80"));
  EXPECT_TRUE(is_this_machine("http://[::1]:80"));
  EXPECT_FALSE(is_this_machine("http://localhost.example"));
  EXPECT_FALSE(is_this_machine("http://127.0.0.10"));
}

TEST(HubNamesTest, AddressesAreEscaped) {
  EXPECT_EQ(escaped("a b/c?d#e%\xc3\xa9"), "a%20b/c%3Fd%23e%25%C3%A9");
  EXPECT_EQ(escaped("refs/pr/1", false), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace weft::hub
