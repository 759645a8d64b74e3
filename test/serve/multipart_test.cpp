// Forms with files: what browsers and clients send, and damage to it.
#include "serve/multipart.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/message_of.hpp"
#include "base/mutations.hpp"
#include "serve/openai.hpp"

namespace weft::serve {
namespace {

constexpr std::string_view kType = "multipart/form-data; boundary=b";
const std::string kForm =
    "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ntiny\r\n"
    "--b\r\ncontent-type: audio/wav\r\nCONTENT-DISPOSITION: form-data; filename=\"a \\\"b\\\".wav\"; name=file\r\n\r\n"
    "RIFF\r\n--c\r\n\r\n--b--\r\n";

TEST(Form, HasFieldsAndFiles) {
  const std::vector<FormPart> parts = parse_form(kType, kForm);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(find_part(parts, "model")->content, "tiny");
  const FormPart* file = find_part(parts, "file");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->file_name, "a \"b\".wav");
  EXPECT_EQ(file->content, "RIFF\r\n--c\r\n");  // a line that only looks like a boundary
  EXPECT_EQ(find_part(parts, "other"), nullptr);
}

TEST(Form, FormsOfTheHeader) {
  for (const char* type : {"Multipart/Form-Data;boundary=\"b\"", "multipart/form-data; charset=utf-8; boundary=b",
                           "multipart/form-data ; BOUNDARY=b "})
    EXPECT_EQ(parse_form(type, kForm).size(), 2u) << type;
  EXPECT_EQ(parse_form(kType, "--b--").size(), 0u);
  EXPECT_EQ(parse_form(kType, "\r\n--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--b--")[0].content, "");
}

TEST(Form, RefusesOthers) {
  const auto refusal = [](std::string_view type, const std::string& body) {
    return test::message_of<OpenAiError>([&] { parse_form(type, body); });
  };
  EXPECT_EQ(refusal("application/json", "{}"),
            "the body is of the type \"application/json\"; send multipart/form-data");
  EXPECT_EQ(refusal("multipart/form-data", kForm), "the form has a boundary of 0 bytes; it must have 1 to 200");
  EXPECT_EQ(refusal(kType, "x" + kForm), "the form does not begin with its boundary");
  EXPECT_EQ(refusal(kType, kForm.substr(0, kForm.size() - 8)), "the form ends before its last boundary");
  EXPECT_EQ(refusal(kType, "--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--"),
            "the form has a part without a name");
  EXPECT_EQ(refusal(kType, "--b\r\n" + std::string(9000, 'a') + "\r\n\r\nx\r\n--b--"),
            "the form has a part whose headers do not end");
}

TEST(Form, SurvivesDamage) {
  test::for_each_mutation(kForm, kForm.size(), 2000, [&](const std::string& bad, const std::string& what) {
    SCOPED_TRACE(what);
    try {
      for (const FormPart& part : parse_form(kType, bad)) {
        EXPECT_GE(part.content.data(), bad.data());
        EXPECT_LE(part.content.data() + part.content.size(), bad.data() + bad.size());
      }
    } catch (const OpenAiError&) {
    }
  });
  // The header too.
  const std::string type(kType);
  test::for_each_mutation(type, type.size(), 500, [&](const std::string& bad, const std::string&) {
    try {
      parse_form(bad, kForm);
    } catch (const OpenAiError&) {
    }
  });
}

}  // namespace
}  // namespace weft::serve
