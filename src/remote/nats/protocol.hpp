// How calls travel over NATS. A request without a header "Weft-Follow" is plain: one message asks, the answer is one message (of a
// subscription: any number, then an end).
//
//   PREFIX.call.SPACE.NAME      requests, for any worker that has the operation (queue group "workers")
//   PREFIX.direct.WORKER.SPACE.NAME   requests for one worker
//   PREFIX.describe             asks every worker for its specifications; PREFIX.describe.SPACE.NAME any for one
//   PREFIX.control              to every worker: grant, credit, abort
//   $SRV.PING, $SRV.INFO, $SRV.STATS  discovery, as the services of NATS have it
//
// A caller that follows sends "Weft-Follow: 1" and listens to its inbox. The worker sends `alive` now and then, so a dead worker is
// noticed. A mutation is run only after its caller has granted it to this worker: it says `taken`, and waits. So a caller that asks
// again, because a worker was silent, never has a mutation run twice. A plain caller has the same for mutations with a request id
// (records.hpp).
#pragma once

#include <optional>
#include <string_view>

namespace weft::remote::wire {

// Headers of requests.
inline constexpr const char* kAuthorization = "Authorization";  // Bearer TOKEN
inline constexpr const char* kFollow = "Weft-Follow";
inline constexpr const char* kTimeout = "Weft-Timeout";  // seconds that are left
inline constexpr const char* kTensors = "Weft-Tensors";  // data or handles
inline constexpr const char* kCredit = "Weft-Credit";    // answers that may be under way at once
inline constexpr const char* kSession = "Weft-Session";  // a subject on which the caller listens while it lives
inline constexpr const char* kVia = "Weft-Via";          // the exchanges that the call has passed
inline constexpr const char* kRequestId =
    "Weft-Request-Id";                                 // of a mutation, which runs once for all requests with this id
inline constexpr const char* kObject = "Weft-Object";  // the body is this object of the store
// Headers of answers.
inline constexpr const char* kEvent = "Weft-Event";  // call.responded, ..., taken, alive
inline constexpr const char* kWorker = "Weft-Worker";
inline constexpr const char* kSequence = "Weft-Sequence";  // 0, 1, 2 of the answers of a call
inline constexpr const char* kRepeated = "Weft-Repeated";  // the answer of an earlier request with this id
inline constexpr const char* kLast = "Weft-Last";          // no more will come
inline constexpr const char* kServiceError = "Nats-Service-Error";
inline constexpr const char* kServiceErrorCode = "Nats-Service-Error-Code";
// Headers of control.
inline constexpr const char* kControl = "Weft-Control";  // grant, credit, abort
inline constexpr const char* kCall = "Weft-Call";        // the inbox of the call

/// The number that is the whole of a header, if it is one.
std::optional<double> number_of(std::string_view text);
/// Whether a worker may publish to this subject to learn whether a caller lives: at most 200 bytes, no pattern, and neither a subject of
/// workers with this prefix nor of the server.
bool is_session(std::string_view subject, std::string_view prefix);

}  // namespace weft::remote::wire
