//! The pulls of an import: requests for messages. The server sends all answers to one inbox.
//!
//! All requests share one inbox, because the server serves several waiting requests in turn: with several inboxes, the messages would lose their
//! order.
//!
//! ```text
//!   request 512 ----> the consumer
//!               <---- 256 messages, in the order of the stream
//!   request 256 ----> ...: while one half of the window is placed, the server sends the other one
//! ```

use crate::connect;
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{Context, Message};
use async_nats::{Client, StatusCode, Subject, Subscriber};
use futures_util::{FutureExt, StreamExt};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The time that a request waits at the server for messages.
const PULL: Duration = Duration::from_secs(2);
/// The extra time in which the server's report of the end of a request must arrive.
const REPORT: Duration = Duration::from_millis(500);
/// The time without an answer after which a request is taken as lost: the server reports the end of each request.
const LOST: Duration = Duration::from_secs(7);

/// The result of a pull.
#[derive(Debug)]
pub enum Pulled {
    /// A message, and the earliest time at which the server may have sent it.
    Message(Rc<Message>, Instant),
    /// No message has come for a while.
    Nothing,
}

/// The unanswered requests to the consumer, and the answers.
#[derive(Debug)]
pub struct Pulls {
    client: Client,
    context: Context,
    consumer: Consumer<pull::Config>,
    inbox: Subject,
    answers: Subscriber,
    window: usize,
    /// The requests, the oldest first: the number of messages that each request can still bring, and the time of the request.
    requests: VecDeque<(usize, Instant)>,
}

impl Pulls {
    /// Opens the inbox.
    ///
    /// # Errors
    /// The error is a sentence: the client has ended.
    pub async fn open(
        client: &Client,
        context: &Context,
        consumer: &Consumer<pull::Config>,
        window: usize,
    ) -> Result<Pulls, String> {
        let inbox = Subject::from(client.new_inbox());
        let answers = client.subscribe(inbox.clone()).await;
        Ok(Pulls {
            client: client.clone(),
            context: context.clone(),
            consumer: consumer.clone(),
            inbox,
            answers: answers.map_err(|error| format!("server: {error}"))?,
            window,
            requests: VecDeque::new(),
        })
    }

    /// Closes the inbox, and opens a new one.
    ///
    /// # Errors
    /// The error of [`open`](Self::open).
    pub async fn begin_again(&mut self) -> Result<(), String> {
        let client = self.client.clone();
        *self = Pulls::open(&client, &self.context, &self.consumer, self.window).await?;
        Ok(())
    }

    /// Forgets all requests, because the server has forgotten the requests of the previous connection.
    pub fn forget(&mut self) {
        self.requests.clear();
    }

    fn pending(&self) -> usize {
        self.requests.iter().map(|request| request.0).sum()
    }

    /// Requests as many messages as the window has room for, if half of the window is free.
    async fn request(&mut self) -> Result<(), String> {
        let pending = self.pending();
        if pending > self.window / 2 {
            return Ok(());
        }
        let batch = self.window - pending;
        let request = pull::BatchConfig {
            batch,
            expires: Some(PULL),
            ..pull::BatchConfig::default()
        };
        let sent = self.consumer.request_batch(request, self.inbox.clone());
        sent.await.map_err(|error| format!("`consumer`: {error}"))?;
        self.requests.push_back((batch, Instant::now()));
        Ok(())
    }

    /// Returns the next message, if one has come. Also returns None if the next request should be made.
    ///
    /// # Errors
    /// The error of [`next`](Self::next).
    pub fn ready(&mut self) -> Option<Result<Pulled, String>> {
        if self.pending() <= self.window / 2 {
            return None;
        }
        let message = self.answers.next().now_or_never()??;
        self.read(message)
    }

    /// Returns the next message. Dropping the future loses no message.
    ///
    /// # Errors
    /// The error is a sentence: the consumer no longer exists, or gives an unexpected answer.
    pub async fn next(&mut self) -> Result<Pulled, String> {
        self.request().await?;
        self.answer(LOST).await
    }

    /// Returns a message of the earlier requests, if one comes within the given time. Makes no new request.
    pub async fn late(&mut self, time: Duration) -> Option<Rc<Message>> {
        match self.answer(time).await {
            Ok(Pulled::Message(message, _)) => Some(message),
            _ => None,
        }
    }

    /// Returns the next message of the earlier requests, and makes no new request. None: the server has reported the end of each request, so no more
    /// messages come.
    pub async fn rest(&mut self) -> Option<Rc<Message>> {
        loop {
            match self.answer(self.left()).await {
                Ok(Pulled::Message(message, _)) => return Some(message),
                Ok(Pulled::Nothing) if self.requests.is_empty() => return None,
                Ok(Pulled::Nothing) => {}
                Err(_) => return None,
            }
        }
    }

    /// Returns the time until the end of the last request.
    #[must_use]
    pub fn left(&self) -> Duration {
        let last = self.requests.back();
        last.map_or(Duration::ZERO, |(_, made)| {
            (*made + PULL + REPORT).saturating_duration_since(Instant::now())
        })
    }

    async fn answer(&mut self, time: Duration) -> Result<Pulled, String> {
        loop {
            let message = match tokio::time::timeout(time, self.answers.next()).await {
                Ok(Some(message)) => message,
                Ok(None) => return Err(connect::ENDED.to_owned()),
                Err(_) => {
                    self.forget();
                    return Ok(Pulled::Nothing);
                }
            };
            if let Some(pulled) = self.read(message) {
                return pulled;
            }
        }
    }

    /// Reads an answer of the consumer. None: the answer is a heartbeat.
    fn read(&mut self, message: async_nats::Message) -> Option<Result<Pulled, String>> {
        match message.status.unwrap_or(StatusCode::OK) {
            StatusCode::OK => {
                let began = self.requests.front().map(|request| request.1);
                self.take(1);
                let context = self.context.clone();
                let message = Rc::new(Message { message, context });
                let began = began.unwrap_or_else(Instant::now);
                Some(Ok(Pulled::Message(message, began)))
            }
            StatusCode::IDLE_HEARTBEAT => None,
            StatusCode::TIMEOUT | StatusCode::NOT_FOUND => {
                // The server reports the end of a request, which brings no more messages.
                let left = message.headers.as_ref().and_then(|headers| {
                    let left = headers.get("Nats-Pending-Messages")?;
                    left.as_str().parse().ok()
                });
                let oldest = self.requests.front().map_or(0, |request| request.0);
                self.take(left.unwrap_or(oldest));
                Some(Ok(Pulled::Nothing))
            }
            status => {
                self.forget();
                let why = message.description.unwrap_or_default();
                Some(Err(format!("`consumer`: {status} {why}")))
            }
        }
    }

    /// Subtracts messages that have come, or that will not come, from the oldest requests.
    fn take(&mut self, mut count: usize) {
        while let Some((left, _)) = self.requests.front_mut() {
            let now = count.min(*left);
            *left -= now;
            count -= now;
            if *left > 0 {
                return;
            }
            self.requests.pop_front();
            if count == 0 {
                return;
            }
        }
    }
}
