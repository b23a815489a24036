//! The way by which the test bed itself asks a server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::ROOT;
use crate::servers::http::{Answer, Request};
use crate::servers::{Fault, Result};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// JSON over a Unix socket: a way in that no port, proxy, certificate or password of a test bars.
#[derive(Debug, Clone)]
pub(super) struct Gateway {
    socket: PathBuf,
    /// There are users, so the bed is one: that of [`ROOT`].
    guarded: Arc<Mutex<Guarded>>,
}

#[derive(Debug, Default)]
struct Guarded {
    on: bool,
    token: Option<String>,
}

impl Gateway {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket, guarded: Arc::default() }
    }

    /// From now on comes as a user.
    pub(super) fn guard(&self) {
        self.guarded().on = true;
    }

    /// Calls a method of the API: `kv/range`, `lease/grant`...
    pub(super) fn call(&self, method: &str, body: &Value) -> Result<Value> {
        self.call_within(method, body, LIMIT)
    }

    /// The same, for no longer than this.
    pub(super) fn call_within(&self, method: &str, body: &Value, limit: Duration) -> Result<Value> {
        let mut outcome = self.post(method, body, limit);
        // Its token has expired, or is from before a restart.
        if outcome.as_ref().is_err_and(|fault| fault.to_string().contains("auth")) {
            let had = self.guarded().token.take();
            if had.is_some() {
                outcome = self.post(method, body, limit);
            }
        }
        outcome.map_err(|fault| fault.during(&format!("`{method}`")))
    }

    /// A page that is not of the API.
    pub(super) fn page(&self, path: &str) -> Result<String> {
        let request = Request { method: "GET", path, authorization: None, body: "" };
        let answer = request.send(&self.socket, LIMIT)?;
        if answer.status == 200 { Ok(answer.body) } else { Err(refusal(&answer)) }
    }

    fn post(&self, method: &str, body: &Value, limit: Duration) -> Result<Value> {
        let token = self.token(limit)?;
        self.post_as(token.as_deref(), method, body, limit)
    }

    fn post_as(
        &self,
        token: Option<&str>,
        method: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Value> {
        let (path, body) = (format!("/v3/{method}"), body.to_string());
        let request = Request { method: "POST", path: &path, authorization: token, body: &body };
        let answer = request.send(&self.socket, limit)?;
        if answer.status != 200 {
            return Err(refusal(&answer));
        }
        serde_json::from_str(&answer.body).map_err(|error| Fault::new(error.to_string()))
    }

    /// What proves who the bed is, where anybody wants to know.
    fn token(&self, limit: Duration) -> Result<Option<String>> {
        let mut guarded = self.guarded();
        if guarded.on && guarded.token.is_none() {
            let (name, password) = ROOT;
            let who = json!({ "name": name, "password": password });
            let answer = self.post_as(None, "auth/authenticate", &who, limit)?;
            guarded.token = answer["token"].as_str().map(str::to_owned);
        }
        Ok(guarded.token.clone())
    }

    fn guarded(&self) -> MutexGuard<'_, Guarded> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(answer: &Answer) -> Fault {
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let text = body["message"].as_str().unwrap_or(&answer.body);
    Fault::new(format!("{text} ({})", answer.status))
}
