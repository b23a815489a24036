//! What people ask for, rather than claims.

use std::time::Duration;

use lockkit_core::{Error, Key, Result, Which};

use super::statements::Statement;
use super::store::Store;

impl Store {
    /// Whether the database lets this client read and write.
    pub(super) async fn probe(&self, budget: Duration) -> Result<()> {
        let mut turn = self.writer.enter(&self.place, budget).await?;
        loop {
            let probe = sqlx::query(self.place.statements.probe.sql());
            match turn.execute(probe).await {
                Ok(_) if !turn.is_current() => turn.refresh().await?,
                Ok(_) => return Ok(()),
                Err(error) => turn.again(error).await?,
            }
        }
    }

    /// Takes the key from live claims. Whether there were such.
    pub(super) async fn force(&self, key: &Key, which: Which, budget: Duration) -> Result<bool> {
        let statements = &self.place.statements;
        let mut turn = self.writer.enter(&self.place, budget).await?;
        loop {
            let now = self.place.boot.moment().stamp;
            let bind = |statement: &Statement| {
                sqlx::query(statement.sql())
                    .bind(key.as_str().as_bytes())
                    .bind(&self.place.boot.id[..])
                    .bind(now)
            };
            let query = match which {
                Which::Whoever => bind(&statements.force),
                // A fence beyond what SQLite can count is nobody's.
                Which::Fence(n) => {
                    bind(&statements.force_fence).bind(i64::try_from(n).unwrap_or(-1))
                }
                Which::Token(token) => {
                    bind(&statements.force_token).bind(token.as_bytes().as_slice())
                }
                _ => return Err(Error::unsupported("sqlite", "such a way of forced release")),
            };
            match turn.execute(query).await {
                Ok(_) if !turn.is_current() => turn.refresh().await?,
                Ok(done) => return Ok(done.rows_affected() > 0),
                Err(error) => turn.again(error).await?,
            }
        }
    }
}
