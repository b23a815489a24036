//! Three processes sell one stock by "read, think a moment, write": without a lock, with a lock
//! inside each process, with lockkit, and with lockkit while one holder is stopped in the middle.
//!
//! ```sh
//! cargo run --release --features sqlite --example oversell
//! ```
//!
//! Every number of the result is read from the stock's own books when a round is over. The exit
//! code is 0 only if each round has come out as it must.

mod args;
mod books;
mod crew;
mod instance;
mod report;
mod rounds;

use std::process::ExitCode;

/// Whatever goes wrong here ends the run.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let role = args::parse();
    let done = tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| {
        let done = runtime.block_on(play(role));
        // A read of standard input may never end.
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            report::say(&format!("oversell: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn play(role: args::Role) -> Result<bool> {
    match role {
        args::Role::Parent(options) => rounds::all(&options).await,
        args::Role::Instance(post) => instance::run(post).await.map(|()| true),
    }
}
